"""`roost audit`: the log of who created, revoked or rotated credentials, and of who was refused."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roost.cli.options import Json
from roost.cli.output import json_line, note, table
from roost.cli.settings import STORE, with_settings
from roost.cli.store import with_store
from roost.doors.admin_views import audit_shown
from roost.engine.ids import timestamp
from roost.engine.ports import AdminStore
from roost.identity.ports import NumberedAudit
from roost.protocol.codec import encode
from roost.settings import Settings


@with_settings(*STORE)
def audit(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The most lines to show.")] = 50,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show the audit log, the newest line first."""

    async def look(store: AdminStore, settings: Settings) -> list[NumberedAudit]:
        return await store.read_audit(None, limit)

    found = with_store(flags, look)
    if as_json:
        json_line(encode({"items": [audit_shown(one) for one in found]}))
    elif found:
        heads = ("TIME", "ACTOR", "ACTION", "FROM", "OUTCOME", "TARGET")
        table(
            heads,
            [
                [timestamp(line.time * 1000), line.actor, line.action, line.address, line.outcome, line.target]
                for _, line in found
            ],
        )
    else:
        note("the audit log is empty")
