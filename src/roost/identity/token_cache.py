"""A cache of all tokens in memory, at most seconds behind the store."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from roost.identity.ports import Changes, Identities, Token, now_ms
from roost.identity.principal import WHOLE_TENANT, Principal
from roost.identity.scopes import opens_any_agent
from roost.identity.tokens import ISSUER, digest
from roost.protocol.errors import Unavailable

log = logging.getLogger("roost.access")

REFRESH_S = 1.0
STALE_S = 4.0
"""The age in seconds from which the cache is not trusted: a revocation takes effect on every host within 5 s."""
WAIT_S = 2.0


class CredentialRefused(Exception):
    """The credential is not valid. The reason is one of a few fixed texts, for logs and metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CachedToken(NamedTuple):
    token: Token
    bearer: Principal
    api_key: Principal


class TokenCache:
    def __init__(self, store: Identities, *, whole_tenant: bool) -> None:
        self.store = store
        self.owner = WHOLE_TENANT if whole_tenant else ""
        self.version = 0
        self.by_digest: dict[bytes, CachedToken] = {}
        self.revoked: set[str] = set()
        """Ids of revoked tokens."""
        self.for_agents = False
        """Whether there is, or was, a token that opens agents: from then on every caller needs a credential."""
        self.fresh_at = float("-inf")
        """The monotonic time at which the last successful refresh began."""
        self.listeners: list[Callable[[Changes], None]] = []
        """Called with every change of tokens and keys."""
        self.chores: list[Callable[[], Awaitable[None]]] = []
        """Called every REFRESH_S seconds; a failure is logged."""
        self.refreshing = asyncio.Lock()
        self.refresher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.refresh()
        self.refresher = asyncio.get_running_loop().create_task(self._refresh_forever(), name="token_cache")

    async def close(self) -> None:
        if self.refresher is not None:
            self.refresher.cancel()
            await asyncio.gather(self.refresher, return_exceptions=True)
        await self._do_chores()

    async def refresh(self) -> None:
        """Read the changes since the last refresh."""
        async with self.refreshing:
            started = time.monotonic()
            changes = await self.store.read_identities(self.version)
            for token in changes.tokens:
                self._learn(token)
            if changes.version != self.version:
                for listener in self.listeners:
                    listener(changes)
            self.version = changes.version
            self.fresh_at = started

    async def ensure_fresh(self) -> None:
        if time.monotonic() - self.fresh_at > STALE_S:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self.refresh()
            except TimeoutError:
                raise Unavailable("credentials cannot be checked at the moment; try again", retry_after=1) from None

    def find(self, secret: str) -> CachedToken:
        """Return the token with this secret; CredentialRefused if there is none, or it is revoked or expired."""
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
        """Whether the credential of a principal is still valid."""
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
        self.for_agents = self.for_agents or opens_any_agent(token.scopes)

    async def _refresh_forever(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
                if failing:
                    log.info("credentials can be read from the store again")
                failing = False
            except Exception as error:
                if not failing:
                    log.warning("credentials cannot be read from the store: %s", error)
                failing = True
                continue
            await self._do_chores()

    async def _do_chores(self) -> None:
        for chore in self.chores:
            try:
                await chore()
            except Exception as error:
                name = getattr(chore, "__qualname__", "a periodic task")
                log.warning("%s failed and will be tried again: %s", name, error)
