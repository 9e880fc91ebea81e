"""Who is calling, and whether they may: from a request's credential to a Principal, or a refusal.

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
from typing import NamedTuple

from roost.doors.http import Request, RequestHead
from roost.engine.follower import Follower
from roost.engine.hosted import Profile
from roost.identity.audit import AuditLog
from roost.identity.jwks import KeysUnavailable
from roost.identity.jwt import JWTClaims, Verifier
from roost.identity.limiter import Windows
from roost.identity.peers import Peer
from roost.identity.principal import DEFAULT_TENANT, LOCAL, WHOLE_TENANT, Principal
from roost.identity.scopes import ADMIN, SCHEMES
from roost.identity.token_cache import CredentialRefused, TokenCache
from roost.protocol.errors import A2AError, Forbidden, InvalidParams, TooManyRequests, Unauthenticated, Unavailable

log = logging.getLogger("roost.access")

API_KEY = b"x-api-key"
API_KEY_NAME = "X-API-Key"
TENANT = b"x-tenant-id"
SECRET_NAMES = frozenset({"access_token", "token", "api_key", "apikey", "x_api_key", "authorization"})

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AccessRules(NamedTuple):
    """What the operator has set."""

    required: bool
    """Nobody is LOCAL, whatever credentials there are."""
    schemes: frozenset[str]
    """Those that are accepted."""
    mtls_scopes: tuple[str, ...]
    unix_scopes: tuple[str, ...]
    whole_tenant: bool
    failures: int
    """Refused credentials a minute from one address."""
    open_metrics: bool
    proxies: tuple[Network, ...] = ()
    always_open: bool = False
    """Agents ask for no credential, whatever credentials there are."""


class Access:
    def __init__(self, token_cache: TokenCache, rules: AccessRules, audit: AuditLog, jwt: Verifier | None) -> None:
        self.token_cache = token_cache
        self.rules = rules
        self.audit = audit
        self.jwt = jwt
        self.failures: Windows[str] = Windows()
        """By address."""
        self.streams: dict[Follower, Principal] = {}
        """Those that are open."""
        self.refusals: Counter[str] = Counter()
        """By reason, for metrics."""
        self.local = LOCAL if not rules.whole_tenant else Principal("roost", "local", owner=WHOLE_TENANT)

    @property
    def open(self) -> bool:
        """Agents ask for no credential."""
        return self.rules.always_open or not (self.rules.required or self.token_cache.for_agents)

    def schemes_of(self, profile: Profile | None) -> tuple[str, ...]:
        """What an agent's card declares: the schemes that are enforced for it."""
        if self.open:
            return ()
        own = self.rules.schemes if profile is None or not profile.schemes else self.rules.schemes & {*profile.schemes}
        return tuple(scheme for scheme in SCHEMES if scheme in own)

    async def for_agent(self, request: RequestHead, profile: Profile) -> Principal:
        """Whoever may call this agent."""
        if self.open and (request.peer is None or request.peer.uid is None):
            principal = self.local
        else:
            found = await self._caller(request)
            if found is None:
                raise self._unauthenticated(request, "missing", self.schemes_of(profile))
            principal = found
            if profile.schemes and principal.scheme not in profile.schemes:
                raise self._unauthenticated(request, "scheme", self.schemes_of(profile))
            if not principal.may_call(profile.id):
                raise self.forbid(request, principal, f"agent:{profile.id}")
        return confined(request, principal)

    def may_use(self, principal: Principal, profile: Profile) -> bool:
        """What `for_agent` would say to somebody who is known."""
        takes = not (principal.scheme and profile.schemes) or principal.scheme in profile.schemes
        return takes and principal.may_call(profile.id)

    async def for_scopes(self, request: RequestHead, *scopes: str) -> Principal:
        """Whoever has one of these scopes; a credential is needed even where agents need none."""
        principal = await self._caller(request)
        if principal is None:
            raise self._unauthenticated(request, "missing", self._all_schemes())
        if not any(scope in principal.scopes for scope in scopes):
            raise self.forbid(request, principal, " or ".join(scopes))
        return principal

    async def for_anyone(self, request: RequestHead) -> Principal:
        """Whoever has some credential, or needs none."""
        if self.open and (request.peer is None or request.peer.uid is None):
            return self.local
        principal = await self._caller(request)
        if principal is None and self.open:
            return self.local
        if principal is None:
            raise self._unauthenticated(request, "missing", self._all_schemes())
        return principal

    async def for_metrics(self, request: RequestHead) -> None:
        if not self.open and not self.rules.open_metrics:
            await self.for_scopes(request, "metrics", ADMIN)

    def forbid(self, request: RequestHead, principal: Principal, needed: str) -> Forbidden:
        self.refusals["scope"] += 1
        why = f"needs the scope {needed}"
        self.audit.record_refusal(principal, f"{request.method} {request.route}", why, self.address(request))
        return Forbidden(f"this credential has no scope for that: it needs {needed}", metadata={"scope": needed})

    # Streams

    def watch(self, follower: Follower, principal: Principal) -> None:
        """A stream ends with the credential that opened it."""
        if principal.token or principal.expires is not None:
            self.streams[follower] = principal

    def unwatch(self, follower: Follower) -> None:
        self.streams.pop(follower, None)

    async def end_streams(self) -> None:
        """Of those whose credential has been revoked or has expired; their clients may come back with another."""
        for follower, principal in list(self.streams.items()):
            if not self.token_cache.holds(principal):
                follower.close()

    # Credentials

    async def _caller(self, request: RequestHead) -> Principal | None:
        """Who the credential names, None where there is none; a bad one is never passed over for another."""
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

    async def _verified(self, verifier: Verifier, token: str) -> JWTClaims:
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
        """Count it, log it and put it on record, without the secret."""
        self.refusals[reason] += 1
        if reason == "missing":  # a client that asks what is needed; nothing was tried
            return Unauthenticated(f"a credential is needed: {_wanted(schemes)}", challenges=_challenges(schemes, ""))
        address = self.address(request)
        network = _network(address)
        self.audit.record_refusal(None, f"{request.method} {request.route}", reason, network)
        wait = self.failures.wait(network, self.rules.failures)
        if wait:
            return _too_many(wait)
        self.failures.add(network)
        log.warning("a credential from %s was refused: %s", address, reason)
        said = f"this credential is refused ({reason}); what is taken: {_wanted(schemes)}"
        return Unauthenticated(said, challenges=_challenges(schemes, reason), metadata={"cause": reason})

    def _slow_down(self, request: RequestHead) -> None:
        """Whoever has failed too often does not make us verify more signatures."""
        wait = self.failures.wait(_network(self.address(request)), self.rules.failures)
        if wait:
            self.refusals["too many"] += 1
            raise _too_many(wait)

    def address(self, request: RequestHead) -> str:
        """The address of the caller; behind a proxy that is trusted, the one that it names."""
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
    """Of two credentials a proxy may have looked at the other one."""
    names = [name for name, _ in request.fields]
    if names.count(b"authorization") + names.count(API_KEY) > 1:
        raise CredentialRefused("malformed")


def confined(request: RequestHead, principal: Principal) -> Principal:
    """To the tenant that the request chooses, if it does."""
    if TENANT not in request.headers:
        return principal
    if [name for name, _ in request.fields].count(TENANT) > 1:
        raise InvalidParams("X-Tenant-Id is there more than once", field="X-Tenant-Id")
    return principal.within(request.header(TENANT), "X-Tenant-Id")


def refuse_in_query(request: Request) -> None:
    """A URL is in logs, histories and referrers: no secret belongs in one."""
    for name in request.query:
        if name.lower().replace("-", "_") in SECRET_NAMES:
            raise InvalidParams(
                f"{name} in the query: a credential does not belong in a URL. Send it in a header, and replace it: it"
                " may be in logs now",
                field=name,
            )


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
    """Who is counted as one: an IPv4 address, or the network that a site with IPv6 has."""
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
