"""Authenticates callers: turns a request's credential into a Principal, or refuses it.

Authorization: Bearer -> Roost's token, or a JWT of the issuer that the operator named
X-API-Key             -> Roost's token
client certificate    -> verified by the server's TLS
Unix socket           -> the user at its other end
nothing               -> LOCAL, on a host that has no credentials for its agents
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import Counter
from functools import lru_cache
from typing import NamedTuple, Protocol

from roost.doors.http import Connection, RequestHead
from roost.engine.hosted import Profile
from roost.identity.audit import AuditLog
from roost.identity.jwks import KeysUnavailable
from roost.identity.jwt import JWTClaims, JWTVerifier
from roost.identity.limiter import Windows
from roost.identity.peers import Peer
from roost.identity.principal import DEFAULT_TENANT, LOCAL, WHOLE_TENANT, Principal
from roost.identity.scopes import SCHEMES
from roost.identity.token_cache import CredentialRefused, TokenCache
from roost.protocol.errors import A2AError, Forbidden, InvalidParams, TooManyRequests, Unauthenticated, Unavailable

log = logging.getLogger("roost.access")

API_KEY = b"x-api-key"
API_KEY_NAME = "X-API-Key"
TENANT = b"x-tenant-id"
SECRET_NAMES = frozenset({"access_token", "token", "api_key", "apikey", "x_api_key", "authorization"})

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Closable(Protocol):
    """A stream or a connection that can be ended from outside."""

    def close(self) -> None: ...


class AccessRules(NamedTuple):
    """The operator's settings that concern access."""

    required: bool
    """Every caller needs a credential, even if none has been made yet."""
    schemes: frozenset[str]
    """The schemes that are accepted."""
    mtls_scopes: tuple[str, ...]
    unix_scopes: tuple[str, ...]
    whole_tenant: bool
    failures: int
    """The number of refused credentials that one address may send in a minute."""
    proxies: tuple[Network, ...] = ()
    always_open: bool = False
    """Agents need no credential, even if some have been made."""


class Access:
    def __init__(self, token_cache: TokenCache, rules: AccessRules, audit: AuditLog, jwt: JWTVerifier | None) -> None:
        self.token_cache = token_cache
        self.rules = rules
        self.audit = audit
        self.jwt = jwt
        self.failures: Windows[str] = Windows()
        """Refused credentials, counted by address."""
        self.streams: dict[Closable, Principal] = {}
        """The open streams and sockets whose credential can end."""
        self.anonymous: set[Closable] = set()
        """The open streams and sockets of callers without a credential, which end when the host is closed."""
        self.refusals: Counter[str] = Counter()
        """Refused callers, counted by reason, for the metrics."""
        self.local = LOCAL if not rules.whole_tenant else Principal("roost", "local", owner=WHOLE_TENANT)

    @property
    def open(self) -> bool:
        """Say whether agents can be called without a credential."""
        return self.rules.always_open or not (self.rules.required or self.token_cache.for_agents)

    def schemes_of(self, profile: Profile | None) -> tuple[str, ...]:
        """Return the schemes that are enforced for an agent, which are those that its card declares."""
        if self.open:
            return ()
        own = self.rules.schemes if profile is None or not profile.schemes else self.rules.schemes & {*profile.schemes}
        return tuple(scheme for scheme in SCHEMES if scheme in own)

    async def caller(self, request: RequestHead, profile: Profile | None = None) -> Principal:
        """Authenticate the caller. `profile` belongs to the agent that is called, where it is known already."""
        if self.open and (request.peer is None or request.peer.uid is None):
            return self.local
        principal = await self._caller(request)
        if principal is not None:
            return principal
        if self.open and profile is None:
            return self.local
        schemes = self._all_schemes() if profile is None else self.schemes_of(profile)
        raise self._unauthenticated(request, "missing", schemes)

    def check_agent(self, request: RequestHead, principal: Principal, agent: str, profile: Profile | None) -> None:
        """Raise unless the caller may call this agent with the credential that it has shown."""
        if principal is self.local:
            return
        if profile is not None and profile.schemes and principal.scheme not in profile.schemes:
            raise self._unauthenticated(request, "scheme", self.schemes_of(profile))
        if not principal.may_call(agent):
            raise self.forbid(request, principal, f"agent:{agent}")

    def may_use(self, principal: Principal, profile: Profile) -> bool:
        """Say whether `check_agent` would let this caller pass."""
        takes = not (principal.scheme and profile.schemes) or principal.scheme in profile.schemes
        return takes and principal.may_call(profile.id)

    async def for_scopes(self, request: RequestHead, *scopes: str) -> Principal:
        """Authenticate a caller who has one of these scopes. A credential is needed even where agents need none."""
        principal = await self._caller(request)
        if principal is None:
            raise self._unauthenticated(request, "missing", self._all_schemes())
        if not any(scope in principal.scopes for scope in scopes):
            raise self.forbid(request, principal, " or ".join(scopes))
        return principal

    def forbid(self, request: RequestHead, principal: Principal, needed: str) -> Forbidden:
        self.refusals["scope"] += 1
        why = f"needs the scope {needed}"
        self.audit.record_refusal(principal, f"{request.method} {request.route}", why, self.address(request))
        return Forbidden(f"this credential has no scope for that: it needs {needed}", metadata={"scope": needed})

    # Streams

    def watch(self, stream: Closable, principal: Principal) -> None:
        """End the stream when the credential that opened it ends, or when one is needed that its caller has not."""
        if not principal.scheme:
            self.anonymous.add(stream)
        elif principal.token or principal.expires is not None:
            self.streams[stream] = principal

    def unwatch(self, stream: Closable) -> None:
        self.streams.pop(stream, None)
        self.anonymous.discard(stream)

    async def end_streams(self) -> None:
        """Close the streams whose callers are not let in any more. Clients may come back with another credential."""
        for stream, principal in list(self.streams.items()):
            if not self.token_cache.holds(principal):
                stream.close()
        if not self.open:
            for stream in list(self.anonymous):
                stream.close()

    def holds(self, principal: Principal) -> bool:
        """Say whether a caller who was let in still would be."""
        return self.token_cache.holds(principal) if principal.scheme else self.open

    # Credentials

    async def _caller(self, request: RequestHead) -> Principal | None:
        """Return the principal that the credential names, or None without a credential. A bad one is never ignored."""
        try:
            _refuse_doubles(request)
            if b"authorization" in request.headers:
                return await self._bearer(request)
            if API_KEY in request.headers:
                self._accepts("apiKey")
                await self.token_cache.ensure_fresh()
                return self.token_cache.find(request.header(API_KEY).strip()).api_key
            return None if request.peer is None else self._peer(request.peer)
        except CredentialRefused as refused:
            raise self._unauthenticated(request, refused.reason, self._all_schemes()) from None

    async def _bearer(self, request: RequestHead) -> Principal:
        scheme, _, secret = request.header(b"authorization").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise CredentialRefused("malformed")
        if self.jwt is not None and "jwt" in self.rules.schemes and "." in secret and not self.token_cache.has(secret):
            claims = self.jwt.cached(secret)
            if claims is None:
                self._slow_down(request)
                claims = await self._verified(self.jwt, secret)
            return _jwt_principal(self.jwt.issuer.issuer, claims, self.rules.whole_tenant)
        self._accepts("bearer")
        await self.token_cache.ensure_fresh()
        return self.token_cache.find(secret).bearer

    async def _verified(self, verifier: JWTVerifier, token: str) -> JWTClaims:
        try:
            return await verifier.verify(token)
        except KeysUnavailable as error:
            self.refusals["no keys"] += 1
            raise Unavailable(f"JWTs cannot be checked now: {error}", retry_after=10) from None

    def _peer(self, peer: Peer) -> Principal | None:
        rules = self.rules
        if peer.certificate is not None and "mtls" in rules.schemes:
            if peer.certificate.not_after <= time.time():
                raise CredentialRefused("expired")
            return _principal("mtls", peer.certificate.subject, rules.mtls_scopes, rules.whole_tenant)
        if peer.uid is not None and "unix" in rules.schemes:
            return _principal("unix", peer.user, rules.unix_scopes, rules.whole_tenant)
        return None

    def _accepts(self, scheme: str) -> None:
        if scheme not in self.rules.schemes:
            raise CredentialRefused("scheme")

    def _all_schemes(self) -> tuple[str, ...]:
        return tuple(scheme for scheme in SCHEMES if scheme in self.rules.schemes)

    # Refusals

    def _unauthenticated(self, request: RequestHead, reason: str, schemes: tuple[str, ...]) -> A2AError:
        """Count, log and record the refusal, without the secret."""
        self.refusals[reason] += 1
        if reason == "missing":  # the client has sent no credential: it asks which one is needed
            return Unauthenticated(f"a credential is needed: {_wanted(schemes)}", challenges=_challenges(schemes, ""))
        address = self.address(request)
        network = _network(address)
        self.audit.record_refusal(None, f"{request.method} {request.route}", reason, network)
        wait = self.failures.wait(network, self.rules.failures)
        if wait:
            return _too_many(wait)
        self.failures.add(network)
        log.warning("a credential from %s was refused: %s", address, reason)
        said = f"this credential is refused ({reason}); this host accepts {_wanted(schemes)}"
        return Unauthenticated(said, challenges=_challenges(schemes, reason), metadata={"cause": reason})

    def _slow_down(self, request: RequestHead) -> None:
        """Refuse addresses that failed too often, before another signature is verified for them."""
        wait = self.failures.wait(_network(self.address(request)), self.rules.failures)
        if wait:
            self.refusals["too many"] += 1
            raise _too_many(wait)

    def address(self, request: RequestHead) -> str:
        """Return the address of the caller, or behind a trusted proxy the address that the proxy names."""
        address = "unix" if request.client is None else request.client
        if self.rules.proxies and b"x-forwarded-for" in request.headers:
            for hop in reversed(request.header_list(b"x-forwarded-for")):
                if not _within(address, self.rules.proxies):
                    break
                address = hop[:64]
        return address


@lru_cache(4096)
def _principal(scheme: str, subject: str, scopes: tuple[str, ...], whole_tenant: bool) -> Principal:
    owner = WHOLE_TENANT if whole_tenant else ""
    return Principal(scheme, subject, DEFAULT_TENANT, (DEFAULT_TENANT,), scopes, scheme, owner)


@lru_cache(4096)
def _jwt_principal(issuer: str, claims: JWTClaims, whole_tenant: bool) -> Principal:
    owner = WHOLE_TENANT if whole_tenant else ""
    tenant, tenants = claims.tenants[0], claims.tenants
    return Principal(issuer, claims.subject, tenant, tenants, claims.scopes, "jwt", owner, expires=claims.expires)


def _refuse_doubles(request: RequestHead) -> None:
    """Refuse a request with two credentials: a proxy may have checked the other one."""
    names = [name for name, _ in request.fields]
    if names.count(b"authorization") + names.count(API_KEY) > 1:
        raise CredentialRefused("malformed")


def confined(request: RequestHead, principal: Principal) -> Principal:
    """Confine the caller to the tenant that the request chooses, if it chooses one."""
    if TENANT not in request.headers:
        return principal
    if [name for name, _ in request.fields].count(TENANT) > 1:
        raise InvalidParams("X-Tenant-Id is there more than once", field="X-Tenant-Id")
    return principal.within(request.header(TENANT), "X-Tenant-Id")


def refuse_in_query(request: Connection) -> None:
    """Refuse secrets in the query: URLs end up in logs, histories and referrers."""
    for name in request.query:
        if name.lower().replace("-", "_") in SECRET_NAMES:
            raise InvalidParams(
                f"{name} in the query: a credential does not belong in a URL. Send it in a header, and replace it: it"
                " may be in logs now",
                field=name,
            )


def ended(principal: Principal, what: str) -> str:
    """Say why a stream, call or connection has ended whose caller is not let in any more."""
    if principal.scheme:
        return f"the credential that opened this {what} has ended"
    return f"this host needs a credential now, and this {what} was opened without one"


def _wanted(schemes: tuple[str, ...]) -> str:
    words = {
        "bearer": "Authorization: Bearer <token>",
        "apiKey": f"{API_KEY_NAME}: <token>",
        "jwt": "Authorization: Bearer <JWT>",
        "mtls": "a client certificate",
        "unix": "the Unix socket of this host",
    }
    return ", or ".join(words[scheme] for scheme in schemes) or "none"


def _challenges(schemes: tuple[str, ...], reason: str) -> list[str]:
    bearer = 'Bearer realm="roost"' + (f', error="invalid_token", error_description="{reason}"' if reason else "")
    found = [bearer] if {"bearer", "jwt"} & {*schemes} else []
    if "apiKey" in schemes:
        found.append(f'ApiKey realm="roost", header="{API_KEY_NAME}"')
    if "mtls" in schemes:
        found.append('Mutual realm="roost"')
    return found or ['Bearer realm="roost"']


def _network(address: str) -> str:
    """Return what is counted as one sender: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


def _too_many(wait: int) -> TooManyRequests:
    return TooManyRequests(f"too many refused credentials from this address; wait {wait} s", retry_after=wait)


def _within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        return any(ipaddress.ip_address(address) in network for network in networks)
    except ValueError:
        return False
