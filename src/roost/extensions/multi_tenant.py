"""multi-tenant/v1 (contract of agentic-sandbox): a message may choose one of its caller's tenants."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from roost.engine.extension import Extension, Incoming
from roost.engine.hosted import Profile
from roost.engine.store_types import Scope
from roost.identity.principal import DEFAULT_TENANT, Principal
from roost.protocol.errors import InvalidParams
from roost.protocol.types import AgentExtension, JSONObject, Message

URI = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"
KEY = "tenant_id"
FIELD = "message.metadata.tenant_id"

Enforcement = Literal["declared", "enforced"]
OFF, ENFORCED = "off", "enforced"


class MultiTenant(Extension):
    """Confines a message to the tenant that it names, and records that tenant.

    enforcement: `declared` if a message may name a tenant, `enforced` if it must.
    """

    uri = URI

    def __init__(self, enforcement: Enforcement) -> None:
        self.enforcement = enforcement

    def declaration(self, profile: Profile | None) -> AgentExtension:
        return AgentExtension(
            uri=URI,
            description="message.metadata.tenant_id chooses one of the caller's tenants; tasks of others do not exist.",
            required=self.enforcement == ENFORCED,
            params={"enforcement": self.enforcement},
        )

    def accept(self, incoming: Incoming) -> Incoming:
        message = incoming.request.message
        principal = confined(incoming.principal, message)
        metadata = message.metadata or {}
        if metadata.get(KEY) is None and self.enforcement == ENFORCED:
            raise InvalidParams(f"{FIELD} is missing: this host serves several tenants", field=FIELD)
        if not (KEY in metadata or principal.tenant != DEFAULT_TENANT or URI in incoming.activated):
            return incoming
        return replace(incoming, principal=principal, stamped_by=(*incoming.stamped_by, self))

    def stamp(self, scope: Scope) -> JSONObject:
        return {KEY: scope.tenant}


def confined(principal: Principal, message: Message) -> Principal:
    """Return the caller within the tenant that the message names. Forbidden if it is not one of the caller's."""
    chosen = (message.metadata or {}).get(KEY)
    if chosen is None:
        return principal
    if not isinstance(chosen, str):
        raise InvalidParams(f"{FIELD} must be a string", field=FIELD)
    return principal.within(chosen, FIELD)
