"""The tokens that there are, in memory: a mirror of the store's, at most seconds behind it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from roost.identity.ports import Changes, Identities, Token, now_ms
from roost.identity.principal import WHOLE_TENANT, Principal
from roost.identity.scopes import for_agents
from roost.identity.tokens import ISSUER, digest
from roost.protocol.errors import Unavailable

log = logging.getLogger("roost.access")

REFRESH_S = 1.0
STALE_S = 4.0
"""A mirror that is older is not trusted: a revocation holds everywhere within 5 s."""
WAIT_S = 2.0


class CredentialRefused(Exception):
    """This credential opens nothing. The reason is one of a few words, for logs and metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CachedToken(NamedTuple):
    token: Token
    bearer: Principal
    api_key: Principal


class TokenCache:
    """`listeners` hear of every change; `chores` are done each second, and may fail."""

    def __init__(self, store: Identities, *, whole_tenant: bool) -> None:
        self.store = store
        self.owner = WHOLE_TENANT if whole_tenant else ""
        self.version = 0
        self.by_digest: dict[bytes, CachedToken] = {}
        self.revoked: set[str] = set()
        """Ids of tokens."""
        self.for_agents = False
        """There is, or was, a token that opens agents: without one nobody gets in any more."""
        self.fresh_at = float("-inf")
        self.listeners: list[Callable[[Changes], None]] = []
        self.chores: list[Callable[[], Awaitable[None]]] = []
        self.turn = asyncio.Lock()
        self.keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.refresh()
        self.keeper = asyncio.get_running_loop().create_task(self._keep(), name="token_cache")

    async def close(self) -> None:
        if self.keeper is not None:
            self.keeper.cancel()
            await asyncio.gather(self.keeper, return_exceptions=True)
        await self._do_chores()

    async def refresh(self) -> None:
        """Read what has changed since the last time."""
        async with self.turn:
            asked = time.monotonic()
            changes = await self.store.read_identities(self.version)
            for token in changes.tokens:
                self._learn(token)
            if changes.version != self.version:
                for listener in self.listeners:
                    listener(changes)
            self.version = changes.version
            self.fresh_at = asked

    async def ensure_fresh(self) -> None:
        if time.monotonic() - self.fresh_at > STALE_S:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self.refresh()
            except TimeoutError:
                raise Unavailable("credentials cannot be checked now; try again", retry_after=1) from None

    def find(self, secret: str) -> CachedToken:
        """The token that this is the secret of; Refused if it opens nothing (any more)."""
        hashed = digest(secret)
        known = self.by_digest.get(hashed)
        if known is None or not hmac.compare_digest(known.token.digest, hashed):
            raise CredentialRefused("unknown")
        if known.token.revoked is not None:
            raise CredentialRefused("revoked")
        if known.token.expires is not None and known.token.expires <= now_ms():
            raise CredentialRefused("expired")
        return known

    def holds(self, principal: Principal) -> bool:
        """Its credential still opens what it opened."""
        over = principal.expires is not None and principal.expires <= now_ms()
        return not over and principal.token not in self.revoked

    def has(self, secret: str) -> bool:
        return digest(secret) in self.by_digest

    def tokens(self) -> list[Token]:
        return sorted((known.token for known in self.by_digest.values()), key=lambda token: token.created)

    def _learn(self, token: Token) -> None:
        def principal(scheme: str) -> Principal:
            return Principal(
                ISSUER,
                token.subject,
                token.tenants[0],
                token.tenants,
                token.scopes,
                scheme,
                self.owner,
                token.id,
                token.expires,
            )

        if token.revoked is not None:
            self.revoked.add(token.id)
        self.by_digest[token.digest] = CachedToken(token, principal("bearer"), principal("apiKey"))
        self.for_agents = self.for_agents or for_agents(token.scopes)

    async def _keep(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
                if failing:
                    log.info("credentials are looked up again")
                failing = False
            except Exception as error:
                if not failing:
                    log.warning("credentials cannot be looked up: %s", error)
                failing = True
                continue
            await self._do_chores()

    async def _do_chores(self) -> None:
        for chore in self.chores:
            try:
                await chore()
            except Exception as error:
                log.warning("%s failed, and is tried again: %s", getattr(chore, "__qualname__", "a chore"), error)
