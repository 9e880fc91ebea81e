"""The public keys of another issuer: fetched, kept while they cannot be, and never more often than needed."""

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
"""Keys that are older are fetched again, while they go on serving."""
WAIT_S = 600
"""If nobody has looked for so long, callers wait: a key that is gone must not be good for the first of them."""
RETRY_S = 10
"""From one fetch to the next, whatever tokens ask for."""
KEEP_S = 86_400
"""How long keys serve while the issuer cannot be asked."""
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
MAX_REASON = 300
RSA_BITS = range(2048, 8193)

PublicKey = RSAKey | ECKey | OKPKey
Fetch = Callable[[str], Awaitable[bytes]]
"""What is at a URL. Whatever it raises means that it cannot be had now."""

_SECRET_PARTS = re.compile(r"(?<=//)[^/\s]*@|[?#]\S*")


class KeysUnavailable(Exception):
    """There is no key to verify any JWT with. The issuer is to blame, not the caller."""


class Jwk(Struct, frozen=True, omit_defaults=True):
    """What matters of a key: a private part that should not be there is not even read."""

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
    """The keys of `issuer`, from `jwks_url` or from where its OpenID configuration says."""

    def __init__(self, issuer: str, jwks_url: str | None, fetch: Fetch, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        self.jwks_url = jwks_url
        self.fetch = fetch
        self.clock = clock
        self.version = 0
        """Another number, other keys."""
        self.keys: dict[Jwk, PublicKey] = {}
        self.fetched = float("-inf")
        self.attempted = float("-inf")
        self.fetching: asyncio.Task[None] | None = None
        self.failing = False

    async def named(self, kid: str | None) -> list[PublicKey]:
        """Those with that id, which may be none; with None all. KeysUnavailable if there are no keys whatever."""
        now = self._now()
        if now - self.attempted > WAIT_S:
            await self._look()
        elif now - self.fetched > REFRESH_S:
            self._start()
        if self._now() - self.fetched > KEEP_S:
            self._take({})
        found = self._find(kid)
        if not found:
            await self._look()
            found = self._find(kid)
        if not self.keys:
            raise KeysUnavailable("the keys of the JWT issuer cannot be fetched")
        return found

    async def close(self) -> None:
        if self.fetching is not None:
            self.fetching.cancel()
            await asyncio.gather(self.fetching, return_exceptions=True)

    def _now(self) -> float:
        """A clock that was set back makes nothing younger than new."""
        now = self.clock()
        self.fetched = min(self.fetched, now)
        self.attempted = min(self.attempted, now)
        return now

    def _find(self, kid: str | None) -> list[PublicKey]:
        return [key for jwk, key in self.keys.items() if kid is None or jwk.kid == kid]

    async def _look(self) -> None:
        """Wait for the fetch that is under way, or for a new one if it is time for one."""
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
                then = "those from before serve for a day" if self.keys else "no JWT is accepted until they can"
                reason = _SECRET_PARTS.sub("", f"{type(error).__name__}: {error}")[:MAX_REASON]
                log.warning("the keys of the JWT issuer cannot be fetched; %s. %s", then, reason)
            self.failing = True
        else:
            self.fetched = self.clock()
            self._take(keys)
            if self.failing:
                log.info("the keys of the JWT issuer are fetched again")
            self.failing = False
        finally:
            self.attempted = self.clock()

    async def _discover(self) -> str:
        where = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = msgspec.json.decode(await self._get(where), type=Discovery)
        if found.issuer != self.issuer:
            raise ValueError(f"{where} is of the issuer {found.issuer!r}, not of {self.issuer!r}: see jwt_issuer")
        if self.issuer.startswith("https:") and not found.jwks_uri.startswith("https:"):
            raise ValueError(f"{where} names keys that are not served by https: set jwt_jwks if that is meant")
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
    """The keys of a JWKS that can be of use, of its first 100. A key that cannot spoils none of the others."""
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
    """None: it is of no type that signs JWTs for us. Symmetric keys are no public keys."""
    parts = msgspec.json.decode(msgspec.json.encode(jwk), type=dict[str, str | list[str]])
    if jwk.kty == "RSA" and base64_to_int(jwk.n or "").bit_length() in RSA_BITS:
        return RSAKey.import_key(parts)
    if jwk.kty == "EC":
        return ECKey.import_key(parts)
    if jwk.kty == "OKP" and jwk.crv == "Ed25519":
        return OKPKey.import_key(parts)
    return None
