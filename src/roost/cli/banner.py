"""What a user sees first: what is served where, where the data is, and a command that works."""

from __future__ import annotations

from roost.doors.index import curl
from roost.host import Host
from roost.settings import Settings


def banner(host: Host, settings: Settings, port: int) -> str:
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = settings.public_url.rstrip("/") or f"http://{name}:{port}"
    profiles = [hosted.profile for hosted in host.agents]
    width = max(len(profile.id) for profile in profiles)
    agents = "\n".join(f"    {p.id:{width}}  {_short(p.description)}" for p in profiles)
    at_root = f"\n  {settings.root} also answers at {base}/" if settings.root else ""
    store = host.engine.store.location if host.engine is not None else ""
    return (
        f"\nRoost serves {len(profiles)} agent{'s' if len(profiles) != 1 else ''} at {base}/agents/\n"
        f"{agents}{at_root}\n"
        f"  Journal: {store}{_workers(settings)}\n"
        f"  {_retention(settings)}\n"
        f"  No credentials are set: only programs on this machine can connect.\n"
        f"  Try it:\n    {curl(base, profiles[0].id)}\n"
    )


def _workers(settings: Settings) -> str:
    return f", {settings.workers} workers" if settings.workers > 1 else ""


def _retention(settings: Settings) -> str:
    rules = [f"{settings.retention_days:g} days after their end"] if settings.retention_days else []
    if settings.retention_tasks:
        rules.append(f"the newest {settings.retention_tasks} of each agent")
    return f"Tasks are kept: {', at most '.join(rules) or 'for ever'} (--retention-days, --retention-tasks)"


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:69] + "…"
