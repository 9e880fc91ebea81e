"""The caller of an engine method."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote

from roost.identity.scopes import ALL_AGENTS, opens_agent
from roost.protocol.errors import Forbidden, InvalidParams

DEFAULT_TENANT = "default"
TENANT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
WHOLE_TENANT = "*"
"""The owner of what belongs to all of a tenant. No principal is called so: theirs have a colon."""


@dataclass(frozen=True, slots=True)
class Principal:
    """(issuer, subject) names a caller; tasks are looked up within its tenant and owner."""

    issuer: str
    subject: str
    tenant: str = DEFAULT_TENANT
    """Where new tasks go."""
    tenants: tuple[str, ...] | None = None
    """Those whose tasks it may see; None: all."""
    scopes: tuple[str, ...] = (ALL_AGENTS,)
    scheme: str = ""
    """How it proved who it is; empty where nobody asked."""
    owner: str = ""
    """Whose its tasks are: its own name by default."""
    token: str = ""
    """The id of Roost's token that it showed."""
    expires: int | None = None
    """When its credential ends, in milliseconds."""

    def __post_init__(self) -> None:
        if not self.owner:
            object.__setattr__(self, "owner", self.name)

    @property
    def name(self) -> str:
        return principal_name(self.issuer, self.subject)

    def sees(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants

    def may_call(self, agent: str) -> bool:
        return opens_agent(self.scopes, agent)

    def within(self, tenant: str, field: str) -> Principal:
        """The same caller, confined to one of its tenants. Forbidden for any other, whether it exists or not."""
        if TENANT_ID.fullmatch(tenant) is None:
            raise InvalidParams(
                f"{field} must be a letter or digit and up to 127 more of letters, digits, '.', '_' and '-'",
                field=field,
            )
        if not self.sees(tenant):
            raise Forbidden(f"this credential is not for the tenant {tenant!r}", metadata={"tenant_id": tenant})
        return replace(self, tenant=tenant, tenants=(tenant,))


def principal_name(issuer: str, subject: str) -> str:
    """Two different principals never have one name, whatever colons are in their parts."""
    return f"{quote(issuer, safe='')}:{subject}"


LOCAL = Principal("roost", "local")
"""Everyone who reaches a host that has no credentials."""
