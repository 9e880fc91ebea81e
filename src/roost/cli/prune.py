"""`roost tasks prune`: deletes ended tasks by hand, as retention does automatically."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note
from roost.cli.settings import STORE, with_settings
from roost.cli.store import with_store
from roost.engine.ports import AdminStore
from roost.protocol.codec import encode
from roost.settings import Settings

STEP = 200
"""Tasks that are deleted in one transaction."""
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")

OlderThan = Annotated[
    str,
    typer.Option(
        metavar="AGE", show_default=False, help="Delete tasks that ended longer ago than this: 12h, 30d, 0s for all."
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", show_default=False, help="Keep the newest N tasks of each agent and delete the others."
    ),
]
OfAgent = Annotated[str, typer.Option(metavar="AGENT", show_default=False, help="Delete only tasks of this agent.")]


@with_settings(*STORE)
def prune(
    older_than: OlderThan = "", keep: Keep = None, agent: OfAgent = "", as_json: Json = False, **flags: Any
) -> None:
    """Delete ended tasks and leave tombstones. Hosts may keep running."""
    before = _before(older_than) if older_than else None
    if before is None and keep is None:
        raise CommandFailed("name the tasks to delete: --older-than AGE, --keep N, or both")

    async def work(store: AdminStore, settings: Settings) -> dict[str, int]:
        gone: dict[str, int] = {}
        for name in [agent] if agent else await store.agents():
            while went := await store.prune(name, before, keep, STEP):
                gone[name] = gone.get(name, 0) + sum(usage.tasks for usage in went)
                note(f"{name}: {gone[name]} deleted")
        return gone

    gone = with_store(flags, work)
    if as_json:
        json_line(encode({"pruned": gone}))
    else:
        print(f"{sum(gone.values())} tasks deleted")


def _before(age: str) -> int:
    found = AGE.fullmatch(age)
    if found is None:
        raise CommandFailed(f"{age!r} is not an age: give a number and s, m, h or d, such as 30d")
    return int(time.time() * 1000 - float(found.group(1)) * UNITS_MS[found.group(2)])
