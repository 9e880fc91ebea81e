"""GET /: what is here and what to type next, as a page for a browser and as JSON for programs."""

from __future__ import annotations

from html import escape

from roost.engine.hosted import Profile
from roost.protocol.codec import encode

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roost</title><style>
:root {{ color-scheme: light dark; --line: #8884; --soft: #8882; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2.5rem auto; padding: 0 1rem; }}
h1 {{ margin-bottom: 0; }} h2 {{ margin: 0; font-size: 1.1rem; }}
article {{ border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem; margin: 1rem 0; }}
pre {{ background: var(--soft); border-radius: .4rem; padding: .7rem; overflow-x: auto; margin: .6rem 0 0; }}
code {{ font: 13px/1.45 ui-monospace, monospace; }} p {{ margin: .3rem 0; }}
</style></head><body>
<h1>Roost</h1><p>{count} behind one A2A 1.0 door. <a href="{base}/agents/">Directory</a> ·
<a href="{base}/.well-known/agent-card.json">card</a> · <a href="{base}/readyz">ready?</a> ·
<a href="{base}/metrics">metrics</a></p>
{agents}
</body></html>
"""

_AGENT = """<article id="{id}"><h2>{name}</h2><p>{description}</p>
<p><a href="{base}/agents/{id}/.well-known/agent-card.json">card</a></p>
<pre><code>{curl}</code></pre>
<pre><code>{cli}</code></pre></article>
"""


def curl(base: str, agent: str) -> str:
    body = '{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"hello"}]}}'
    return (
        f"curl -s {base}/agents/{agent}/message:send -H 'A2A-Version: 1.0'"
        f" -H 'Content-Type: application/json' -d '{body}'"
    )


def cli(base: str, agent: str) -> str:
    return f"roost send --url {base} {agent} 'hello'"


def index_json(profiles: list[Profile], base: str) -> bytes:
    agents = [
        {
            "id": profile.id,
            "name": profile.name,
            "description": profile.description,
            "url": f"{base}/agents/{profile.id}",
            "card": f"{base}/agents/{profile.id}/.well-known/agent-card.json",
            "try": {"curl": curl(base, profile.id), "cli": cli(base, profile.id)},
        }
        for profile in profiles
    ]
    return encode({"agents": agents, "directory": f"{base}/agents/"})


def index_page(profiles: list[Profile], base: str) -> bytes:
    agents = "".join(
        _AGENT.format(
            id=escape(profile.id),
            base=escape(base),
            name=escape(profile.name),
            description=escape(profile.description),
            curl=escape(curl(base, profile.id)),
            cli=escape(cli(base, profile.id)),
        )
        for profile in profiles
    )
    count = "1 agent" if len(profiles) == 1 else f"{len(profiles)} agents"
    return _PAGE.format(base=escape(base), count=count, agents=agents).encode()
