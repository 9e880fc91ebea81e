"""The caller of an engine method."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """(issuer, subject) names a caller; tasks are looked up within its tenant and owner."""

    issuer: str
    subject: str
    tenant: str

    @property
    def owner(self) -> str:
        return f"{self.issuer}:{self.subject}"


LOCAL = Principal("roost", "local", "default")
"""Everyone who reaches a host that has no credentials."""
