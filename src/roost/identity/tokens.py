"""Tokens that Roost issues: created here, stored as hashes, and shown only once."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from roost.identity.audit import AuditLog
from roost.identity.ports import Identities, Token, now_ms
from roost.identity.principal import DEFAULT_TENANT, TENANT_ID
from roost.identity.scopes import parse_scopes

PREFIX = "roost_"
"""A prefix by which people and secret scanners recognise a token."""
MIN_SECRET = 16
MAX_SECRET = 512
MAX_TENANTS = 100
MAX_NAME = 128
ISSUER = "roost"
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class TokenRequest(NamedTuple):
    """The properties of a token to be created."""

    name: str
    scopes: Sequence[str]
    tenants: Sequence[str] = ()
    subject: str = ""
    lifetime_s: int | None = None


class BadToken(ValueError):
    """The token cannot be created; the message says what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NewToken(NamedTuple):
    token: Token
    secret: str


def make_token(request: TokenRequest, secret: str = "") -> NewToken:
    """Create a token with a random secret, or with the one that the operator provides."""
    if not _is_name(request.name):
        raise BadToken("name", f"the name must have 1 to {MAX_NAME} printable characters")
    subject = request.subject or request.name
    if not _is_name(subject):
        raise BadToken("subject", f"the subject must have 1 to {MAX_NAME} printable characters")
    try:
        scopes = parse_scopes(request.scopes)
    except ValueError as error:
        raise BadToken("scopes", str(error)) from None
    if not scopes:
        raise BadToken("scopes", "a token without a scope gives access to nothing: add at least one, such as agent:*")
    tenants = tuple(dict.fromkeys(request.tenants)) or (DEFAULT_TENANT,)
    if len(tenants) > MAX_TENANTS:
        raise BadToken("tenants", f"a token can have at most {MAX_TENANTS} tenants")
    for tenant in tenants:
        if TENANT_ID.fullmatch(tenant) is None:
            raise BadToken(
                "tenants",
                f"{tenant!r} is not a tenant: use letters, digits, '.', '_' and '-', at most 128 characters",
            )
    if request.lifetime_s is not None and request.lifetime_s <= 0:
        raise BadToken("expiresIn", "the lifetime of a token must be longer than zero")
    value = secret or PREFIX + secrets.token_urlsafe(32)
    if not MIN_SECRET <= len(value) <= MAX_SECRET or not all("!" <= character <= "~" for character in value):
        raise BadToken(
            "token",
            f"it must have {MIN_SECRET} to {MAX_SECRET} characters that a header can carry; `openssl rand -hex 32`"
            " makes a good one",
        )
    now = now_ms()
    expires = None if request.lifetime_s is None else now + request.lifetime_s * 1000
    token_id = f"tok-{secrets.token_hex(6)}"
    return NewToken(Token(token_id, digest(value), request.name, subject, tenants, scopes, now, expires), value)


class Tokens:
    """Creates and revokes tokens, and records it in the audit log."""

    def __init__(self, store: Identities, audit: AuditLog) -> None:
        self.store = store
        self.audit = audit

    async def create(self, request: TokenRequest, actor: str, address: str = "") -> NewToken:
        while True:
            new = make_token(request)
            # The audit log has the line before the token can be used.
            await self.audit.record(actor, "token.create", _description(new.token), address=address)
            if await self.store.add_token(new.token):
                return new

    async def revoke(self, token_id: str, actor: str, address: str = "") -> Token | None:
        """Revoke a token and return it; None if there is no such token."""
        token = await self.store.revoke_token(token_id, now_ms())
        if token is not None:
            await self.audit.record(actor, "token.revoke", _description(token), address=address)
        return token


def _description(token: Token) -> str:
    return f"{token.id} {token.name} ({' '.join(token.scopes)})"


async def seed_token(store: Identities, audit: AuditLog, name: str, secret: str, scopes: Sequence[str]) -> None:
    """Add a token that the operator provides, unless an earlier start or another host has added it."""
    new = make_token(TokenRequest(name, scopes), secret)
    if await store.add_token(new.token):
        await audit.record("roost:environment", "token.create", _description(new.token))


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= MAX_NAME and text.isprintable()


def digest(secret: str) -> bytes:
    """Hash a secret. One of 128 bits or more needs no slow hash: it cannot be guessed from this one."""
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def seconds(text: str) -> int:
    """Parse a duration such as 90d, 12h, 30m or 45s; ValueError for anything else."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write 90d, 12h, 30m or 45s")
    return int(found[1]) * _SECONDS[found[2]]
