"""Tokens that Roost gives out: made here, kept as hashes, never shown again."""

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
"""So that people and scanners of repositories know one when they see it."""
LEAST_SECRET = 16
MOST_SECRET = 512
MOST_TENANTS = 100
MAX_NAME = 128
ISSUER = "roost"
_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class TokenRequest(NamedTuple):
    """What a new token is to be."""

    name: str
    scopes: Sequence[str]
    tenants: Sequence[str] = ()
    subject: str = ""
    lifetime_s: int | None = None


class BadToken(ValueError):
    """Such a token cannot be made; the message says what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Made(NamedTuple):
    token: Token
    secret: str


def make_token(wish: TokenRequest, secret: str = "") -> Made:
    """`secret` is made, unless the operator brings one."""
    if not _is_name(wish.name):
        raise BadToken("name", f"the name must have 1 to {MAX_NAME} characters, and none that cannot be seen")
    subject = wish.subject or wish.name
    if not _is_name(subject):
        raise BadToken("subject", f"the subject must have 1 to {MAX_NAME} characters, and none that cannot be seen")
    try:
        scopes = parse_scopes(wish.scopes)
    except ValueError as error:
        raise BadToken("scopes", str(error)) from None
    if not scopes:
        raise BadToken("scopes", "a token without a scope opens nothing: give at least one, such as agent:*")
    tenants = tuple(dict.fromkeys(wish.tenants)) or (DEFAULT_TENANT,)
    if len(tenants) > MOST_TENANTS:
        raise BadToken("tenants", f"a token can have {MOST_TENANTS} tenants at most")
    for tenant in tenants:
        if TENANT_ID.fullmatch(tenant) is None:
            raise BadToken("tenants", f"{tenant!r} is no tenant: letters, digits, '.', '_' and '-', 128 at most")
    if wish.lifetime_s is not None and wish.lifetime_s <= 0:
        raise BadToken("expiresIn", "a token that has expired is of no use")
    made = secret or PREFIX + secrets.token_urlsafe(32)
    if not LEAST_SECRET <= len(made) <= MOST_SECRET or not all("!" <= character <= "~" for character in made):
        raise BadToken(
            "token",
            f"it must have {LEAST_SECRET} to {MOST_SECRET} characters that a header can carry; `openssl rand -hex 32`"
            " makes a good one",
        )
    now = now_ms()
    expires = None if wish.lifetime_s is None else now + wish.lifetime_s * 1000
    token_id = f"tok-{secrets.token_hex(6)}"
    return Made(Token(token_id, digest(made), wish.name, subject, tenants, scopes, now, expires), made)


class Tokens:
    """What is done to tokens, on record."""

    def __init__(self, store: Identities, audit: AuditLog) -> None:
        self.store = store
        self.audit = audit

    async def create(self, wish: TokenRequest, actor: str, address: str = "") -> Made:
        while True:
            made = make_token(wish)
            await self.audit.did(actor, "token.create", _named(made.token), address=address)  # before it opens anything
            if await self.store.add_token(made.token):
                return made

    async def revoke(self, token_id: str, actor: str, address: str = "") -> Token | None:
        """None if there is no such token."""
        token = await self.store.revoke_token(token_id, now_ms())
        if token is not None:
            await self.audit.did(actor, "token.revoke", _named(token), address=address)
        return token


def _named(token: Token) -> str:
    return f"{token.id} {token.name} ({' '.join(token.scopes)})"


async def seed_token(store: Identities, audit: AuditLog, name: str, secret: str, scopes: Sequence[str]) -> None:
    """One that the operator brings. One that is there already, from another start or host, stays as it is."""
    made = make_token(TokenRequest(name, scopes), secret)
    if await store.add_token(made.token):
        await audit.did("roost:environment", "token.create", _named(made.token))


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= MAX_NAME and text.isprintable()


def digest(secret: str) -> bytes:
    """A secret of 128 bits or more needs no slow hash: it cannot be guessed from this one."""
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def seconds(text: str) -> int:
    """90d, 12h, 30m or 45s. ValueError otherwise."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time: write 90d, 12h, 30m or 45s")
    return int(found[1]) * _SECONDS[found[2]]
