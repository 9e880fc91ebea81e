"""The list of doors, in the order in which they are asked whether they claim a request.

To add a door, write its file and add one line here.
"""

from __future__ import annotations

from roost._version import VERSION
from roost.doors.a2a_03.door import OldJSONRPCDoor, OldRestDoor
from roost.doors.admin import AdminDoor
from roost.doors.cards import CardDoor
from roost.doors.context import Context
from roost.doors.door import Door
from roost.doors.index import HostDoor
from roost.doors.jsonrpc import JSONRPCDoor
from roost.doors.mcp import MCPDoor
from roost.doors.observability import Observability, ObservabilityDoor
from roost.doors.openai.door import OpenAIDoor
from roost.doors.rest import RestDoor
from roost.doors.sandbox import SandboxDoor
from roost.evidence.export import Exporter
from roost.identity.tokens import Tokens
from roost.settings import Settings
from roost.wiring.identity import IdentityServices


def open_doors(
    settings: Settings, context: Context, identity: IdentityServices, observability: Observability
) -> list[Door]:
    doors: list[Door | None] = [
        CardDoor(context, root=settings.root, old=settings.serves_a2a_03),
        AdminDoor(
            context,
            Tokens(identity.store, identity.audit),
            identity.audit,
            Exporter(identity.store, identity.keyring),
        ),
        OpenAIDoor(context, cancels=settings.openai_cancel) if settings.openai else None,
        MCPDoor(context, VERSION, sessions_here=settings.workers == 1) if settings.mcp else None,
        ObservabilityDoor(context, observability, open_metrics=settings.open_metrics),
        SandboxDoor(context) if not settings.strict else None,
        OldRestDoor(context) if settings.serves_a2a_03 else None,
        OldJSONRPCDoor(context) if settings.serves_a2a_03 else None,
        JSONRPCDoor(context),
        RestDoor(context),
    ]
    found = [door for door in doors if door is not None]
    return [HostDoor(context, found, version=VERSION, root=settings.root), *found]
