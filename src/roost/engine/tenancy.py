"""multi-tenant/v1: a message may choose one of its caller's tenants (contract of agentic-sandbox)."""

from __future__ import annotations

from collections.abc import Sequence

from roost.identity.principal import DEFAULT_TENANT, Principal
from roost.protocol.errors import InvalidParams
from roost.protocol.types import JSONObject, Message

EXTENSION = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"
KEY = "tenant_id"
FIELD = "message.metadata.tenant_id"

OFF, DECLARED, ENFORCED = "off", "declared", "enforced"


def confined(mode: str, principal: Principal, message: Message) -> Principal:
    """The caller within the tenant that the message names. Forbidden if it is none of its own."""
    if mode == OFF:
        return principal
    chosen = (message.metadata or {}).get(KEY)
    if chosen is None:
        if mode == ENFORCED:
            raise InvalidParams(f"{FIELD} is missing: this host serves several tenants", field=FIELD)
        return principal
    if not isinstance(chosen, str):
        raise InvalidParams(f"{FIELD} must be a string", field=FIELD)
    return principal.within(chosen, FIELD)


def echo(mode: str, tenant: str, message: Message, extensions: Sequence[str]) -> JSONObject | None:
    """What all that comes of the message says of its tenant; nothing where nobody cares."""
    if mode == OFF:
        return None
    named = tenant != DEFAULT_TENANT or mode == ENFORCED or EXTENSION in extensions
    return {KEY: tenant} if named or KEY in (message.metadata or {}) else None
