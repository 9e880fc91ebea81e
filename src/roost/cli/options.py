"""The options that every client command has, and the commands that it tells the user to type next."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="ROOST_URL", metavar="URL", help="The host to talk to: http(s)://host[:port] or unix:PATH."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token", envvar="ROOST_TOKEN", metavar="TOKEN", show_default=False, help="Credential, sent as a bearer token."
    ),
]
Tenant = Annotated[
    str,
    typer.Option(
        "--tenant", envvar="ROOST_TENANT", metavar="TENANT", show_default=False, help="Which of the caller's tenants."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")]
OfAgent = Annotated[
    str, typer.Option("--agent", metavar="AGENT", show_default=False, help="Whose task it is; found by itself.")
]


def command(url: str, *words: str) -> str:
    """A command that reaches the same host. The token is never part of it."""
    place = () if url == DEFAULT_URL else ("--url", url)
    return f"`{shlex.join(('roost', *words, *place))}`"
