"""JWTs of an external issuer as credentials. No claim is trusted before the signature is verified."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from joserfc.errors import JoseError
from joserfc.jwa import JWS_ALGORITHMS, JWSAlgModel
from joserfc.util import urlsafe_b64decode
from msgspec import UNSET, Raw, Struct, UnsetType

from roost.identity.jwks import Fetch, Keys, PublicKey
from roost.identity.principal import DEFAULT_TENANT, TENANT_ID
from roost.identity.scopes import is_known, is_ours
from roost.identity.token_cache import CredentialRefused
from roost.identity.tokens import digest

MAX_TOKEN = 8 * 1024
MAX_SUBJECT = 255
LEEWAY_S = 30
"""Seconds that the issuer's clock may be ahead of ours. There is no leeway for a token that has expired."""
MAX_CACHED = 4096
CACHE_S = 60
"""Seconds for which a verified token is accepted without being verified again."""
LATEST_S = 253_402_300_799
"""The end of the year 9999: later expiry times are cut to it, because many formats cannot represent them."""
SCOPE_CLAIM, OTHER_SCOPE_CLAIM = "scope", "scp"

_ACCEPTED = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"})
ALGORITHMS = {algorithm.name: algorithm for algorithm in JWS_ALGORITHMS if algorithm.name in _ACCEPTED}

REASONS = frozenset(
    {
        "algorithm",
        "critical header",
        "expired",
        "malformed",
        "no expiry",
        "no subject",
        "not yet valid",
        "oversized",
        "signature",
        "tenant",
        "unknown key",
        "wrong audience",
        "wrong issuer",
    }
)
"""The reasons of CredentialRefused, for logs and metrics."""


class Issuer(NamedTuple):
    """The issuer whose JWTs are accepted, and how their claims are read."""

    issuer: str
    audience: str
    scopes: tuple[str, ...]
    """The scopes of a JWT that has none of Roost's scopes."""
    jwks_url: str | None = None
    """The URL of its keys; None to read it from its OpenID configuration."""
    scope_claim: str = SCOPE_CLAIM
    tenant_claim: str = "tenant"


class JWTClaims(NamedTuple):
    subject: str
    tenants: tuple[str, ...]
    """The tenants that the caller may use; the first is the default."""
    scopes: tuple[str, ...]
    expires: int
    """Milliseconds since 1970."""


class Header(Struct):
    """The header fields that are read. Keys that a token contains or points to (jwk, jku, x5c, x5u) are ignored."""

    alg: str
    kid: str | None = None
    crit: Raw | UnsetType = UNSET


class Registered(Struct):
    iss: str = ""
    sub: str = ""
    aud: str | list[str] = []
    exp: float | None = None
    nbf: float | None = None
    iat: float | None = None


class Parsed(NamedTuple):
    header: Header
    registered: Registered
    claims: dict[str, object]
    signed: bytes
    signature: bytes


class CachedClaims(NamedTuple):
    claims: JWTClaims
    since: float
    until: float
    version: int
    """The version of the keys that the token was verified with."""


class JWTVerifier:
    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float] = time.time) -> None:
        self.issuer = issuer
        self.clock = clock
        self.keys = Keys(issuer.issuer, issuer.jwks_url, fetch, clock)
        self.cache: OrderedDict[bytes, CachedClaims] = OrderedDict()
        """Claims of verified tokens, by the digest of the token; the least recently used first."""

    def cached(self, token: str) -> JWTClaims | None:
        """Return the claims of a token that was verified a moment ago; None if it has to be verified."""
        hashed = digest(token)
        found = self.cache.get(hashed)
        if found is None:
            return None
        if found.version != self.keys.version or not found.since <= self.clock() < found.until:
            del self.cache[hashed]
            return None
        self.cache.move_to_end(hashed)
        return found.claims

    async def verify(self, token: str) -> JWTClaims:
        """Return the claims of a token. Raise CredentialRefused with one of REASONS, or KeysUnavailable."""
        parsed = parse(token)
        if parsed.header.crit is not UNSET:
            raise CredentialRefused("critical header")
        algorithm = ALGORITHMS.get(parsed.header.alg)
        if algorithm is None:
            raise CredentialRefused("algorithm")
        if parsed.registered.iss != self.issuer.issuer:
            raise CredentialRefused("wrong issuer")  # before a fetch, which a foreign token must not cause
        key = _fitting(algorithm, parsed.header.kid, await self.keys.named(parsed.header.kid))
        if not algorithm.verify(parsed.signed, parsed.signature, key):
            raise CredentialRefused("signature")
        claims = self._validated(parsed)
        self._put_in_cache(token, claims)
        return claims

    async def close(self) -> None:
        await self.keys.close()

    def _validated(self, parsed: Parsed) -> JWTClaims:
        registered, now = parsed.registered, self.clock()
        if registered.exp is None:
            raise CredentialRefused("no expiry")
        if registered.exp <= now:
            raise CredentialRefused("expired")
        if any(start is not None and start > now + LEEWAY_S for start in (registered.nbf, registered.iat)):
            raise CredentialRefused("not yet valid")
        if self.issuer.audience not in ([registered.aud] if isinstance(registered.aud, str) else registered.aud):
            raise CredentialRefused("wrong audience")
        if not 0 < len(registered.sub) <= MAX_SUBJECT or not registered.sub.isprintable():
            raise CredentialRefused("no subject")
        expires = int(min(registered.exp, LATEST_S) * 1000)
        return JWTClaims(registered.sub, self._tenants(parsed.claims), self._scopes(parsed.claims), expires)

    def _tenants(self, claims: dict[str, object]) -> tuple[str, ...]:
        claim = claims.get(self.issuer.tenant_claim, DEFAULT_TENANT)
        tenants = _strings([claim] if isinstance(claim, str) else claim)
        if not tenants or not all(TENANT_ID.fullmatch(tenant) for tenant in tenants):
            raise CredentialRefused("tenant")
        return tenants

    def _scopes(self, claims: dict[str, object]) -> tuple[str, ...]:
        names = [self.issuer.scope_claim]
        if names == [SCOPE_CLAIM]:
            names.append(OTHER_SCOPE_CLAIM)
        scopes: list[str] = []
        for claim in (claims.get(name, "") for name in names):
            found = _strings(claim.split() if isinstance(claim, str) else claim)
            if found is None:
                raise CredentialRefused("malformed")
            scopes += found
        ours = [scope for scope in scopes if is_ours(scope)]
        return tuple(dict.fromkeys(filter(is_known, ours))) if ours else self.issuer.scopes

    def _put_in_cache(self, token: str, claims: JWTClaims) -> None:
        now = self.clock()
        until = min(claims.expires / 1000, now + CACHE_S)
        hashed = digest(token)
        self.cache[hashed] = CachedClaims(claims, now, until, self.keys.version)
        self.cache.move_to_end(hashed)
        if len(self.cache) > MAX_CACHED:
            self.cache.popitem(last=False)


def parse(token: str) -> Parsed:
    """Parse a JWT in its compact form without verifying it. An encrypted one has more parts and is refused."""
    if len(token) > MAX_TOKEN:
        raise CredentialRefused("oversized")
    try:
        head, payload, signature = token.encode("ascii").split(b".")
        header = msgspec.json.decode(urlsafe_b64decode(head), type=Header)
        claims = msgspec.json.decode(urlsafe_b64decode(payload), type=dict[str, object])
        registered = msgspec.convert(claims, Registered)
        return Parsed(header, registered, claims, head + b"." + payload, urlsafe_b64decode(signature))
    except (ValueError, RecursionError):
        raise CredentialRefused("malformed") from None


def _fitting(algorithm: JWSAlgModel, kid: str | None, keys: list[PublicKey]) -> PublicKey:
    """Return the key with that id; without an id, the only one that the algorithm can use."""
    fitting = [key for key in keys if _fits(algorithm, key)]
    if not keys or (kid is None and len(fitting) != 1):
        raise CredentialRefused("unknown key")
    if not fitting:
        raise CredentialRefused("algorithm")
    return fitting[0]


def _fits(algorithm: JWSAlgModel, key: PublicKey) -> bool:
    try:
        algorithm.check_key(key)
        key.check_key_op("verify")
    except JoseError:
        return False
    return True


def _strings(value: object) -> tuple[str, ...] | None:
    """Return the strings of a list without duplicates; None if it is not a list of strings."""
    try:
        return tuple(dict.fromkeys(msgspec.convert(value, list[str])))
    except msgspec.ValidationError:
        return None
