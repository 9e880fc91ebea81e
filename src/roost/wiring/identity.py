"""Creates the parts of identity: who may call, what they may do, and the keys that sign cards."""

from __future__ import annotations

from collections.abc import Sequence

from roost.addresses import is_loopback
from roost.doors.access import Access, AccessRules
from roost.egress import Egress
from roost.engine.engine import Engine
from roost.engine.hosted import Profile
from roost.engine.ports import Store
from roost.engine.store_types import Party
from roost.extensions.multi_tenant import ENFORCED
from roost.identity import quotas
from roost.identity.audit import AuditLog
from roost.identity.jwt import Issuer, JWTVerifier
from roost.identity.keys import Keyring
from roost.identity.quotas import Meter
from roost.identity.scopes import ADMIN, ALL_AGENTS, AUDIT, METRICS, OPERATE, SCHEMES, parse_scopes
from roost.identity.seal import Seal
from roost.identity.token_cache import TokenCache
from roost.identity.tokens import BadToken, seed_token
from roost.settings import Settings
from roost.wiring.egress import fetcher, open_issuer_egress

OPERATOR = (ADMIN, OPERATE, AUDIT, METRICS)
"""The scopes of the first admin token."""
PARTIES: dict[str, Party] = {"principal": "owner", "tenant": "tenant", "agent": "agent"}
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class IdentityError(Exception):
    """The host must not start with these settings; the message says what to change."""


class IdentityServices:
    """The parts of identity. `hosts` are the addresses that the host listens on, as far as they are known."""

    def __init__(self, settings: Settings, store: Store, engine: Engine, seal: Seal, hosts: Sequence[str]) -> None:
        self.settings = settings
        self.store = store
        self.hosts = hosts
        self.engine = engine
        whole_tenant = settings.ownership == "tenant"
        self.audit = AuditLog(store)
        self.token_cache = TokenCache(store, whole_tenant=whole_tenant)
        self.keyring = Keyring(store, seal, settings.card_alg)
        self.egress: Egress | None = open_issuer_egress(settings) if settings.jwt_issuer else None
        self.jwt = None if self.egress is None else JWTVerifier(_issuer(settings), fetcher(self.egress))
        self.access = Access(self.token_cache, self._rules(whole_tenant), self.audit, self.jwt)

    async def start(self) -> None:
        settings = self.settings
        try:
            if settings.token:
                await seed_token(self.token_cache.store, self.audit, "ROOST_TOKEN", settings.token, [ALL_AGENTS])
            if settings.admin_token:
                await seed_token(
                    self.token_cache.store, self.audit, "ROOST_ADMIN_TOKEN", settings.admin_token, OPERATOR
                )
        except BadToken as error:
            raise IdentityError(f"ROOST_TOKEN or ROOST_ADMIN_TOKEN cannot be used: {error}") from None
        self.token_cache.listeners.append(self.keyring.absorb)
        self.token_cache.chores += [self.access.end_streams, self.audit.flush, self.keyring.sweep]
        if not self.engine.meter.idle:
            self.token_cache.chores.append(self._share)
        await self.token_cache.start()
        self._check_bind()

    async def close(self) -> None:
        await self.token_cache.close()
        if self.jwt is not None:
            await self.jwt.close()
        if self.egress is not None:
            await self.egress.close()

    def check_schemes(self, profile: Profile) -> None:
        """Raise IdentityError if no caller could call the agent, because the host accepts none of its schemes."""
        accepted, offered = profile.schemes or SCHEMES, self.access.rules.schemes
        if not offered & {*accepted}:
            raise IdentityError(
                f"the agent {profile.id!r} accepts only {', '.join(accepted)}, and this host offers"
                f" {', '.join(sorted(offered)) or 'none of them'}: see security_scheme, client_ca and jwt_issuer"
            )

    def _check_bind(self) -> None:
        """Raise IdentityError if a host without credentials listens on more than loopback."""
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

    async def _share(self) -> None:
        """Exchange the counts of quotas with other hosts."""
        meter, store = self.engine.meter, self.store
        meter.set_others(await store.share(self.engine.worker.name, meter.figures()))
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
            proxies=tuple(settings.networks()),
            always_open=settings.auth == "open",
        )


def _issuer(settings: Settings) -> Issuer:
    return Issuer(
        settings.jwt_issuer,
        settings.jwt_audience,
        parse_scopes(settings.jwt_scopes.split(",")),
        settings.jwt_jwks or None,
        settings.jwt_scope_claim,
        settings.jwt_tenant_claim,
    )


def open_meter(settings: Settings) -> Meter:
    found = quotas.parse(settings.quotas)
    return Meter(quotas.with_tenant_defaults(found) if settings.multi_tenant == ENFORCED else found)


def security_headers(settings: Settings) -> list[tuple[bytes, bytes]]:
    """The headers of every response. Browsers accept HSTS over TLS only."""
    secure = bool(settings.tls_cert) or settings.public_url.startswith("https:")
    hsts = [(b"strict-transport-security", b"max-age=%d" % settings.hsts_s)] if secure and settings.hsts_s else []
    return [*SECURITY_HEADERS, *hsts]
