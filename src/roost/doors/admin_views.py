"""Tokens, keys and audit lines as the admin surface and commands show them. Imports little: commands start with it."""

from __future__ import annotations

from roost.engine.ids import timestamp
from roost.identity.ports import NumberedAudit, SigningKey, Token

OVERLAP_S = 7 * 86_400
"""Seconds that a key stays valid after it was replaced."""


def token_shown(token: Token) -> dict[str, object]:
    """Return everything but the hash."""
    return {
        "id": token.id,
        "name": token.name,
        "subject": token.subject,
        "tenants": token.tenants,
        "scopes": token.scopes,
        "created": timestamp(token.created * 1000),
        "expires": None if token.expires is None else timestamp(token.expires * 1000),
        "revoked": None if token.revoked is None else timestamp(token.revoked * 1000),
    }


def key_shown(key: SigningKey) -> dict[str, object]:
    """Return everything but the private part."""
    return {
        "agent": key.agent or "-",
        "kid": key.kid,
        "alg": key.alg,
        "created": timestamp(key.created * 1000),
        "until": None if key.until is None else timestamp(key.until * 1000),
        "retired": None if key.retired is None else timestamp(key.retired * 1000),
    }


def audit_shown(found: NumberedAudit) -> dict[str, object]:
    return {"number": found.number, **found.line._asdict(), "time": timestamp(found.line.time * 1000)}
