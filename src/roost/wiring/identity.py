"""Wires identity together: who is known here, what they may do, and the keys that cards are signed with."""

from __future__ import annotations

from collections.abc import Sequence

from roost._version import VERSION
from roost.addresses import is_loopback
from roost.doors.access import Access, AccessRules
from roost.doors.admin import Admin
from roost.doors.cards import Cards
from roost.egress import Egress
from roost.engine.engine import Engine
from roost.engine.ports import Party
from roost.engine.tenancy import ENFORCED
from roost.fleet.cards import Terms
from roost.identity import quotas
from roost.identity.audit import AuditLog
from roost.identity.jwt import Issuer, Verifier
from roost.identity.keys import Keyring
from roost.identity.ports import Changes, Identities
from roost.identity.quotas import Meter
from roost.identity.scopes import ADMIN, ALL_AGENTS, AUDIT, METRICS, OPERATE, SCHEMES, parse_scopes
from roost.identity.seal import Seal
from roost.identity.token_cache import TokenCache
from roost.identity.tokens import BadToken, Tokens, seed_token
from roost.protocol.canonical import NotCanonical
from roost.settings import Settings
from roost.wiring.egress import fetcher, open_issuer_egress

OPERATOR = (ADMIN, OPERATE, AUDIT, METRICS)
"""What the first admin token opens."""
PARTIES: dict[str, Party] = {"principal": "owner", "tenant": "tenant", "agent": "agent"}
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class IdentityError(Exception):
    """The host must not start like this; the message says what to change."""


class IdentityServices:
    """`hosts` are the addresses that are listened on, where they are known."""

    def __init__(self, settings: Settings, engine: Engine, seal: Seal, hosts: Sequence[str]) -> None:
        self.settings = settings
        self.hosts = hosts
        self.engine = engine
        store: Identities = engine.store
        whole_tenant = settings.ownership == "tenant"
        self.audit = AuditLog(store)
        self.token_cache = TokenCache(store, whole_tenant=whole_tenant)
        self.keyring = Keyring(store, seal, settings.card_alg)
        self.egress: Egress | None = None
        self.jwt = self._open_jwt()
        self.access = Access(self.token_cache, self._rules(whole_tenant), self.audit, self.jwt)
        profiles = [queue.hosted.profile for queue in engine.runner.queues.values()]
        self.cards = Cards(profiles, self.access, self.keyring, version=VERSION, terms=self._terms())
        self.admin = Admin(engine, self.access, Tokens(store, self.audit), self.keyring, self.audit)

    async def start(self) -> None:
        settings = self.settings
        try:
            self.cards.check()
        except NotCanonical as error:
            raise IdentityError(str(error)) from None
        offered = self.access.rules.schemes
        for profile in self.cards.profiles:
            taken = profile.schemes or SCHEMES
            if not offered & {*taken}:
                raise IdentityError(
                    f"the agent {profile.id!r} takes only {', '.join(taken)}, and this host offers"
                    f" {', '.join(sorted(offered)) or 'none of them'}: see security_scheme, client_ca and jwt_issuer"
                )
        try:
            if settings.token:
                await seed_token(self.token_cache.store, self.audit, "ROOST_TOKEN", settings.token, [ALL_AGENTS])
            if settings.admin_token:
                await seed_token(
                    self.token_cache.store, self.audit, "ROOST_ADMIN_TOKEN", settings.admin_token, OPERATOR
                )
        except BadToken as error:
            raise IdentityError(f"ROOST_TOKEN or ROOST_ADMIN_TOKEN cannot be used: {error}") from None
        self.token_cache.listeners += [self.keyring.absorb, self._changed]
        self.token_cache.chores += [self.access.end_streams, self.audit.flush, self.keyring.sweep]
        if not self.engine.meter.idle:
            self.token_cache.chores.append(self._share)
        await self.token_cache.start()

    async def close(self) -> None:
        await self.token_cache.close()
        if self.jwt is not None:
            await self.jwt.close()
        if self.egress is not None:
            await self.egress.close()

    def check_bind(self) -> None:
        """Without credentials a host is for its own machine."""
        far = [host for host in self.hosts if not is_loopback(host)]
        if not far:
            return
        if self.settings.auth == "open":
            raise IdentityError(
                f"auth is open, so anyone who reaches {far[0]} could use the agents. An open host listens on loopback"
                " only: use --host 127.0.0.1, or leave --auth out"
            )
        if not (self.token_cache.for_agents or self.jwt is not None or self.settings.client_ca):
            raise IdentityError(
                f"this host has no credentials, so anyone who reaches {far[0]} could use its agents. Make one first:"
                " `roost token create NAME` (or set ROOST_TOKEN, --jwt-issuer or --client-ca). Without one a host"
                " listens on loopback only: --host 127.0.0.1"
            )

    def _changed(self, changes: Changes) -> None:
        self.cards.forget()

    async def _share(self) -> None:
        """Tell other hosts what this one counts, and hear what they do."""
        meter, store = self.engine.meter, self.engine.store
        meter.set_others(await store.share(self.engine.worker, meter.figures()))
        wanted = list(meter.wanted)
        if wanted:
            sizes = await store.stored_bytes([(PARTIES[kind], name) for kind, name in wanted])
            meter.stored = dict(zip(wanted, sizes, strict=True))

    def _rules(self, whole_tenant: bool) -> AccessRules:
        settings = self.settings
        configured = self.jwt is not None or bool(settings.client_ca)
        far = any(not is_loopback(host) for host in self.hosts)
        required = settings.auth == "required" or (settings.auth == "auto" and (configured or far))
        possible = {
            "bearer": True,
            "apiKey": True,
            "jwt": self.jwt is not None,
            "mtls": bool(settings.client_ca),
            "unix": "unix:" in settings.listen,
        }
        chosen = [item.strip() for item in settings.security_scheme.split(",") if item.strip()] or list(SCHEMES)
        return AccessRules(
            required=required,
            schemes=frozenset(scheme for scheme in chosen if possible[scheme]),
            mtls_scopes=parse_scopes(settings.mtls_scopes.split(",")),
            unix_scopes=parse_scopes(settings.unix_scopes.split(",")),
            whole_tenant=whole_tenant,
            failures=settings.auth_failures,
            open_metrics=settings.open_metrics,
            proxies=tuple(settings.networks()),
            always_open=settings.auth == "open",
        )

    def _open_jwt(self) -> Verifier | None:
        settings = self.settings
        if not settings.jwt_issuer:
            return None
        issuer = Issuer(
            settings.jwt_issuer,
            settings.jwt_audience,
            parse_scopes(settings.jwt_scopes.split(",")),
            settings.jwt_jwks or None,
            settings.jwt_scope_claim,
            settings.jwt_tenant_claim,
        )
        self.egress = open_issuer_egress(settings)
        return Verifier(issuer, fetcher(self.egress))

    def _terms(self) -> Terms:
        settings = self.settings
        openid = f"{settings.jwt_issuer.rstrip('/')}/.well-known/openid-configuration"
        return Terms(
            description=settings.security_description,
            openid_url=openid if settings.jwt_issuer and not settings.jwt_jwks else "",
            tenants=settings.multi_tenant,
            push=settings.push,
            a2a_03=settings.a2a_03,
        )


def open_meter(settings: Settings) -> Meter:
    found = quotas.parse(settings.quotas)
    return Meter(quotas.with_tenant_defaults(found) if settings.multi_tenant == ENFORCED else found)


def security_headers(settings: Settings) -> list[tuple[bytes, bytes]]:
    """Of every answer. Browsers take HSTS over TLS only."""
    secure = bool(settings.tls_cert) or settings.public_url.startswith("https:")
    hsts = [(b"strict-transport-security", b"max-age=%d" % settings.hsts_s)] if secure and settings.hsts_s else []
    return [*SECURITY_HEADERS, *hsts]
