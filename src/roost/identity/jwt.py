"""JWTs of another issuer as credentials. Nothing in one is believed before its signature is verified."""

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
from roost.identity.scopes import known_scope, meant_for_us
from roost.identity.token_cache import CredentialRefused
from roost.identity.tokens import digest

MAX_TOKEN = 8 * 1024
MAX_SUBJECT = 255
LEEWAY_S = 30
"""For the clock of an issuer that is ahead of ours. A token that has expired has expired."""
REMEMBERED = 4096
REMEMBER_S = 60
"""How long a token that was verified is believed again at sight."""
LATEST_S = 253_402_300_799
"""The end of the year 9999: no time after it is told to anyone."""
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
"""Of Refused, for logs and metrics."""


class Issuer(NamedTuple):
    """Whose JWTs are accepted, and what they are taken to say."""

    issuer: str
    audience: str
    scopes: tuple[str, ...]
    """Of a JWT that names none of Roost's."""
    jwks_url: str | None = None
    """Where its keys are; None: where its OpenID configuration says."""
    scope_claim: str = SCOPE_CLAIM
    tenant_claim: str = "tenant"


class JWTClaims(NamedTuple):
    subject: str
    tenants: tuple[str, ...]
    """The first is the default, the others can be chosen."""
    scopes: tuple[str, ...]
    expires: int
    """Milliseconds, as in ports."""


class Header(Struct):
    """Keys that a token brings itself, or points to (jwk, jku, x5c, x5u), are not read."""

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


class Remembered(NamedTuple):
    claims: JWTClaims
    since: float
    until: float
    version: int
    """Of the keys that it was verified with."""


class Verifier:
    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float] = time.time) -> None:
        self.issuer = issuer
        self.clock = clock
        self.keys = Keys(issuer.issuer, issuer.jwks_url, fetch, clock)
        self.remembered: OrderedDict[bytes, Remembered] = OrderedDict()

    def known(self, token: str) -> JWTClaims | None:
        """What a token says that was verified a moment ago; None: verify it."""
        hashed = digest(token)
        found = self.remembered.get(hashed)
        if found is None:
            return None
        if found.version != self.keys.version or not found.since <= self.clock() < found.until:
            del self.remembered[hashed]
            return None
        self.remembered.move_to_end(hashed)
        return found.claims

    async def verify(self, token: str) -> JWTClaims:
        """Raises Refused with one of REASONS, or KeysUnavailable."""
        parsed = parse(token)
        if parsed.header.crit is not UNSET:
            raise CredentialRefused("critical header")
        algorithm = ALGORITHMS.get(parsed.header.alg)
        if algorithm is None:
            raise CredentialRefused("algorithm")
        if parsed.registered.iss != self.issuer.issuer:
            raise CredentialRefused("wrong issuer")  # another issuer's key is not worth a fetch
        key = _fitting(algorithm, parsed.header.kid, await self.keys.named(parsed.header.kid))
        if not algorithm.verify(parsed.signed, parsed.signature, key):
            raise CredentialRefused("signature")
        claims = self._judged(parsed)
        self._remember(token, claims)
        return claims

    async def close(self) -> None:
        await self.keys.close()

    def _judged(self, parsed: Parsed) -> JWTClaims:
        said, now = parsed.registered, self.clock()
        if said.exp is None:
            raise CredentialRefused("no expiry")
        if said.exp <= now:
            raise CredentialRefused("expired")
        if any(start is not None and start > now + LEEWAY_S for start in (said.nbf, said.iat)):
            raise CredentialRefused("not yet valid")
        if self.issuer.audience not in ([said.aud] if isinstance(said.aud, str) else said.aud):
            raise CredentialRefused("wrong audience")
        if not 0 < len(said.sub) <= MAX_SUBJECT or not said.sub.isprintable():
            raise CredentialRefused("no subject")
        expires = int(min(said.exp, LATEST_S) * 1000)
        return JWTClaims(said.sub, self._tenants(parsed.claims), self._scopes(parsed.claims), expires)

    def _tenants(self, claims: dict[str, object]) -> tuple[str, ...]:
        said = claims.get(self.issuer.tenant_claim, DEFAULT_TENANT)
        tenants = _strings([said] if isinstance(said, str) else said)
        if not tenants or not all(TENANT_ID.fullmatch(tenant) for tenant in tenants):
            raise CredentialRefused("tenant")
        return tenants

    def _scopes(self, claims: dict[str, object]) -> tuple[str, ...]:
        names = [self.issuer.scope_claim]
        if names == [SCOPE_CLAIM]:
            names.append(OTHER_SCOPE_CLAIM)
        words: list[str] = []
        for said in (claims.get(name, "") for name in names):
            found = _strings(said.split() if isinstance(said, str) else said)
            if found is None:
                raise CredentialRefused("malformed")
            words += found
        ours = [word for word in words if meant_for_us(word)]
        return tuple(dict.fromkeys(filter(known_scope, ours))) if ours else self.issuer.scopes

    def _remember(self, token: str, claims: JWTClaims) -> None:
        now = self.clock()
        until = min(claims.expires / 1000, now + REMEMBER_S)
        hashed = digest(token)
        self.remembered[hashed] = Remembered(claims, now, until, self.keys.version)
        self.remembered.move_to_end(hashed)
        if len(self.remembered) > REMEMBERED:
            self.remembered.popitem(last=False)


def parse(token: str) -> Parsed:
    """A JWT in its compact form, signed by whomever. One that is encrypted has more parts."""
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
    """The key that is named; without a name, the only one that the algorithm can be used with."""
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


def _strings(said: object) -> tuple[str, ...] | None:
    """Once each; None if it is no list of strings."""
    try:
        return tuple(dict.fromkeys(msgspec.convert(said, list[str])))
    except msgspec.ValidationError:
        return None
