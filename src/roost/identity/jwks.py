"""The public keys of an external JWT issuer: fetched no more often than needed, and kept while a fetch fails."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.util import base64_to_int
from msgspec import Raw, Struct

log = logging.getLogger("roost.access")

REFRESH_S = 300
"""The age in seconds after which keys are fetched again, in the background."""
WAIT_S = 600
"""Seconds without a fetch after which callers wait for one: a key that was withdrawn must not work once more."""
RETRY_S = 10
"""The least number of seconds from one fetch to the next, whatever keys the tokens name."""
KEEP_S = 86_400
"""Seconds for which keys are used while the issuer cannot be reached."""
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
MAX_REASON = 300
RSA_BITS = range(2048, 8193)

PublicKey = RSAKey | ECKey | OKPKey
Fetch = Callable[[str], Awaitable[bytes]]
"""A function that returns the content at a URL. Any exception means that it is unavailable now."""

_SECRET_PARTS = re.compile(r"(?<=//)[^/\s]*@|[?#]\S*")


class KeysUnavailable(Exception):
    """There is no key to verify any JWT with. The issuer is at fault, not the caller."""


class Jwk(Struct, frozen=True, omit_defaults=True):
    """The fields of a key that are read. A private part, which should not be there, is ignored."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str | None = None
    key_ops: tuple[str, ...] | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None


class Jwks(Struct):
    keys: list[Raw]


class Discovery(Struct):
    issuer: str
    jwks_uri: str


class Keys:
    """The keys of `issuer`, from `jwks_url` or from the URL in its OpenID configuration."""

    def __init__(self, issuer: str, jwks_url: str | None, fetch: Fetch, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        self.jwks_url = jwks_url
        self.fetch = fetch
        self.clock = clock
        self.version = 0
        """Raised whenever the set of keys changes."""
        self.keys: dict[Jwk, PublicKey] = {}
        self.fetched = float("-inf")
        self.attempted = float("-inf")
        self.fetching: asyncio.Task[None] | None = None
        self.failing = False

    async def named(self, kid: str | None) -> list[PublicKey]:
        """Return the keys with that id, which may be none; all keys for None. KeysUnavailable if there is no key."""
        now = self._now()
        if now - self.attempted > WAIT_S:
            await self._wait_for_fetch()
        elif now - self.fetched > REFRESH_S:
            self._start()
        if self._now() - self.fetched > KEEP_S:
            self._take({})
        found = self._find(kid)
        if not found:
            await self._wait_for_fetch()
            found = self._find(kid)
        if not self.keys:
            raise KeysUnavailable("the keys of the JWT issuer cannot be fetched")
        return found

    async def close(self) -> None:
        if self.fetching is not None:
            self.fetching.cancel()
            await asyncio.gather(self.fetching, return_exceptions=True)

    def _now(self) -> float:
        """Read the clock. If it was set back, the times of fetches must not lie in the future."""
        now = self.clock()
        self.fetched = min(self.fetched, now)
        self.attempted = min(self.attempted, now)
        return now

    def _find(self, kid: str | None) -> list[PublicKey]:
        return [key for jwk, key in self.keys.items() if kid is None or jwk.kid == kid]

    async def _wait_for_fetch(self) -> None:
        """Wait for the fetch that is in progress, or for a new one unless the last one was too recent."""
        fetching = self._start()
        if fetching is not None:
            await asyncio.wait({fetching})

    def _start(self) -> asyncio.Task[None] | None:
        if self.fetching is not None and not self.fetching.done():
            return self.fetching
        now = self._now()
        if now - self.attempted < RETRY_S:
            return None
        self.attempted = now
        self.fetching = asyncio.get_running_loop().create_task(self._refresh(), name="jwks")
        return self.fetching

    async def _refresh(self) -> None:
        try:
            keys = public_keys(await self._get(self.jwks_url or await self._discover()))
        except Exception as error:
            if not self.failing:
                effect = "the last ones are used for a day" if self.keys else "no JWT is accepted until they can be"
                reason = _SECRET_PARTS.sub("", f"{type(error).__name__}: {error}")[:MAX_REASON]
                log.warning("the keys of the JWT issuer cannot be fetched; %s. %s", effect, reason)
            self.failing = True
        else:
            self.fetched = self.clock()
            self._take(keys)
            if self.failing:
                log.info("the keys of the JWT issuer can be fetched again")
            self.failing = False
        finally:
            self.attempted = self.clock()

    async def _discover(self) -> str:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = msgspec.json.decode(await self._get(url), type=Discovery)
        if found.issuer != self.issuer:
            raise ValueError(f"{url} names the issuer {found.issuer!r}, not {self.issuer!r}: check jwt_issuer")
        if self.issuer.startswith("https:") and not found.jwks_uri.startswith("https:"):
            raise ValueError(f"{url} names a jwks_uri without https: set jwt_jwks if that is intended")
        return found.jwks_uri

    async def _get(self, url: str) -> bytes:
        data = await self.fetch(url)
        if len(data) > MAX_BYTES:
            raise ValueError(f"{url} has more than {MAX_BYTES} bytes")
        return data

    def _take(self, keys: dict[Jwk, PublicKey]) -> None:
        if keys.keys() != self.keys.keys():
            self.keys = keys
            self.version += 1


def public_keys(data: bytes) -> dict[Jwk, PublicKey]:
    """Return the usable keys among the first 100 of a JWKS. An unusable key does not affect the others."""
    found: dict[Jwk, PublicKey] = {}
    for jwk in _readable(msgspec.json.decode(data, type=Jwks).keys[:MAX_KEYS]):
        try:
            key = _imported(jwk)
        except (JoseError, ValueError, KeyError):
            continue
        if key is not None:
            found[jwk] = key
    return found


def _readable(keys: Iterable[Raw]) -> Iterable[Jwk]:
    for raw in keys:
        try:
            yield msgspec.json.decode(raw, type=Jwk)
        except msgspec.ValidationError:
            continue


def _imported(jwk: Jwk) -> PublicKey | None:
    """Import a key; None if its type signs no JWT that we accept. Symmetric keys are no public keys."""
    parts = msgspec.json.decode(msgspec.json.encode(jwk), type=dict[str, str | list[str]])
    if jwk.kty == "RSA" and base64_to_int(jwk.n or "").bit_length() in RSA_BITS:
        return RSAKey.import_key(parts)
    if jwk.kty == "EC":
        return ECKey.import_key(parts)
    if jwk.kty == "OKP" and jwk.crv == "Ed25519":
        return OKPKey.import_key(parts)
    return None
