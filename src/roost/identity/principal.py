"""The caller of an engine method."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import quote

from roost.identity.scopes import ALL_AGENTS, opens_agent
from roost.protocol.errors import Forbidden, InvalidParams

DEFAULT_TENANT = "default"
TENANT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
WHOLE_TENANT = "*"
"""The owner of tasks that a whole tenant shares. No principal has this name: theirs contain a colon."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, identified by issuer and subject. Its tasks are looked up within its tenant and owner."""

    issuer: str
    subject: str
    tenant: str = DEFAULT_TENANT
    """The tenant of its new tasks."""
    tenants: tuple[str, ...] | None = None
    """The tenants whose tasks it may see; None for all."""
    scopes: tuple[str, ...] = (ALL_AGENTS,)
    scheme: str = ""
    """The authentication scheme of its credential; empty where none is required."""
    owner: str = ""
    """The owner of its tasks: its own name by default."""
    token: str = ""
    """The id of the token that it presented, if Roost issued it."""
    expires: int | None = None
    """When its credential expires, in milliseconds since 1970."""

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
        """Return the caller confined to one of its tenants. Forbidden for any other, whether it exists or not."""
        if TENANT_ID.fullmatch(tenant) is None:
            raise InvalidParams(
                f"{field} must be a letter or digit and up to 127 more of letters, digits, '.', '_' and '-'",
                field=field,
            )
        if not self.sees(tenant):
            raise Forbidden(f"this credential is not for the tenant {tenant!r}", metadata={"tenant_id": tenant})
        return replace(self, tenant=tenant, tenants=(tenant,))


@lru_cache(1024)
def principal_name(issuer: str, subject: str) -> str:
    """Return issuer:subject, quoted so that two different principals never have one name."""
    return f"{quote(issuer, safe='')}:{subject}"


@lru_cache(1024)
def user_name(uid: int) -> str:
    """Return the name of a user of this machine, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


LOCAL = Principal("roost", "local")
"""The caller at a host that requires no credentials."""
