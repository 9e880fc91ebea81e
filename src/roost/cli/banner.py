"""The first output of `roost serve`: what is served and where, where the data is, and a command to try."""

from __future__ import annotations

import shlex

from roost.doors.index import curl
from roost.host import Host
from roost.settings import Settings


def banner(host: Host, settings: Settings, places: list[str]) -> str:
    """`places` are URLs, and unix:PATH for a socket."""
    urls = [place for place in places if not place.startswith("unix:")]
    base = settings.public_url.rstrip("/") or next(iter(urls), "http://localhost")
    profiles = host.agents.profiles()
    width = max(len(profile.id) for profile in profiles)
    agents = "\n".join(f"    {p.id:{width}}  {_short(p.description)}" for p in profiles)
    at_root = f"\n  {settings.root} also answers at {base}/" if settings.root else ""
    listening = f"\n  Listening on {', '.join(places)}" if settings.listen else ""
    if host.grpc is not None:
        listening += f"\n  gRPC: {host.grpc.place}"
    store = host.engine.store.location if host.engine is not None else ""
    command = curl(base, profiles[0].id)
    if host.identity is not None and not host.identity.access.open and urls:
        command += ' -H "Authorization: Bearer $ROOST_TOKEN"'
    if not urls:
        path = places[0].removeprefix("unix:")
        command = command.replace("curl -s", f"curl -s --unix-socket {shlex.quote(path)}", 1)
    return (
        f"\nRoost serves {len(profiles)} agent{'s' if len(profiles) != 1 else ''} at {base}/agents/\n"
        f"{agents}{at_root}{listening}\n"
        f"  Journal: {store}{_workers(settings)}\n"
        f"  {_retention(settings)}\n"
        f"  {_credentials(host)}\n"
        f"  Try it:\n    {command}\n"
    )


def _credentials(host: Host) -> str:
    if host.identity is None or host.identity.access.open:
        return (
            "There are no credentials: only programs on this machine can connect. `roost token create NAME` makes one"
        )
    schemes = ", ".join(host.identity.access.schemes_of(None))
    return f"Callers need a credential: {schemes}. `roost token list` shows tokens"


def _workers(settings: Settings) -> str:
    return f", {settings.workers} workers" if settings.workers > 1 else ""


def _retention(settings: Settings) -> str:
    rules = [f"{settings.retention_days:g} days after their end"] if settings.retention_days else []
    if settings.retention_tasks:
        rules.append(f"the newest {settings.retention_tasks} of each agent")
    return f"Tasks are kept: {', at most '.join(rules) or 'forever'} (--retention-days, --retention-tasks)"


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:69] + "…"
