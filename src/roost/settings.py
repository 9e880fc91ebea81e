"""Every setting, read once: flag, then ROOST_* variable, then roost.toml, then default."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from roost.identity.quotas import parse as parse_quotas
from roost.identity.scopes import SCHEMES, parse_scopes

DOCS: dict[str, str] = {
    "host": "Address to listen on. Without credentials only a loopback address is allowed.",
    "port": "Port to listen on.",
    "listen": "Where to listen instead of host and port, comma separated: host:port, or unix:PATH for a socket whose"
    " callers are known by their user id.",
    "grpc": "Where to serve gRPC too: host:port, port 0 for any. Off by default.",
    "grpc_public": "host:port under which clients reach gRPC; cards say it. The bound address by default, on the host"
    " of public_url where there is one.",
    "tls_cert": "Certificate chain (PEM): serve TLS. Read again when the file changes.",
    "tls_key": "Private key of tls_cert (PEM); others must not be able to read it.",
    "client_ca": "CA certificates (PEM) whose client certificates are credentials.",
    "auth": "Who may call agents: auto (anyone on this machine until there is a credential), required, or open"
    " (anyone; only on loopback).",
    "token": "A first bearer token for the agents, for containers; kept as a hash. At least 16 characters.",
    "admin_token": "The same for the admin routes.",
    "security_scheme": "Which credentials are accepted and declared in cards, comma separated: bearer, apiKey, jwt,"
    " mtls, unix. All that are configured by default.",
    "security_description": "What cards say of how to get a credential.",
    "jwt_issuer": "Issuer (iss) of the JWTs that are accepted.",
    "jwt_audience": "Audience (aud) that they must be for.",
    "jwt_jwks": "URL of the issuer's keys; found by OpenID discovery by default.",
    "jwt_scopes": "Scopes of a JWT that names none of Roost's, comma separated.",
    "jwt_scope_claim": "Claim that names scopes, as a list or words.",
    "jwt_tenant_claim": "Claim that names the tenant, or a list of them.",
    "mtls_scopes": "Scopes of callers with a client certificate, comma separated.",
    "unix_scopes": "Scopes of callers on a Unix socket, comma separated.",
    "unix_mode": "Permissions of Unix sockets: who may connect.",
    "ownership": "Whose a task is: the principal's who sent it, or the whole tenant's.",
    "multi_tenant": "multi-tenant/v1: off, declared (a message may choose a tenant), or enforced (it must).",
    "quotas": "Limits as kind[:name].what=number, comma separated; kind is principal, tenant, agent or surface, what is"
    " rate (requests a minute; of a tenant, messages), tasks, streams or mb: tenant.rate=100,agent:trip.tasks=5",
    "auth_failures": "Refused credentials a minute from one address; then 429.",
    "open_metrics": "Serve /metrics without a credential.",
    "cors_origins": "Origins of web pages that may call this host, comma separated: https://app.example.com",
    "hsts_s": "Seconds that browsers remember to use https only (HSTS); sent when this host is served by TLS. 0 never.",
    "card_alg": "How new keys sign cards: EdDSA (Ed25519) or ES256.",
    "data": "Folder of the journal.",
    "store": "postgresql://user@host/database for several hosts on one journal; SQLite in the data folder by default.",
    "wake": "nats://host:port: how hosts on one PostgreSQL tell each other of news; by NOTIFY without it.",
    "workers": "Host processes on this machine; more than one needs PostgreSQL.",
    "secret_file": "Key that secrets in the store are encrypted with: secret.key in the data folder by default;"
    " required with PostgreSQL, the same file on every machine.",
    "memory": "Keep nothing on disk; all tasks end with the process.",
    "root": "Agent that the root path serves; implied when one .py file is served.",
    "a2a_03": "Serve A2A 0.3 too: JSON-RPC, REST below /v1/, gRPC, and the old card paths.",
    "openai": "Serve agents to clients of OpenAI too, below /openai/v1/.",
    "openai_cancel": "A client of OpenAI's that drops its connection cancels its task; otherwise the task goes on.",
    "mcp": "Serve agents as tools to clients of MCP too, at /mcp; needs the extra mcp.",
    "public_url": "URL under which clients reach this host; cards say it. The bound address by default.",
    "trusted_proxy": "CIDRs of proxies whose forwarded headers are accepted, comma separated.",
    "max_body": "Longest request body in bytes; longer ones get 413.",
    "max_parts": "Most parts of a message.",
    "max_metadata": "Most bytes of a message's metadata, and of a request's, as JSON.",
    "max_headers": "Most headers of a request; more get 431.",
    "max_head_bytes": "Most bytes of a request's line and headers; more get 431.",
    "head_s": "Seconds that a client may take to send a request's headers, or to send any more of its body.",
    "write_s": "Seconds that a client may read nothing of its answer; then its connection is closed.",
    "max_connections": "Most open connections of a process; more are answered 503 and closed.",
    "log_level": "debug, info, warning or error; debug logs every request.",
    "log_format": "text, json, or auto: text on a terminal, JSON otherwise.",
    "drain_s": "Seconds that running requests and tasks are given when the host is told to stop; then other hosts, or"
    " the next start, go on with the tasks.",
    "push": "Call webhooks; off: cards declare no push notifications, no webhook is taken, and those there are wait.",
    "push_allow_hosts": "Hosts that webhooks may be at although their addresses are not public, comma separated:"
    " name, name:port or *.name.",
    "push_allow_cidrs": "Networks that webhooks may be in although they are not public, comma separated.",
    "push_secret": "Signs every webhook call (X-AIWG-Signature); no signature without it.",
    "push_attempts": "How often a webhook is tried with one event; then the event is a dead letter.",
    "push_retry_s": "Seconds before the second try; each further wait is twice as long, with some chance in it.",
    "push_per_host": "Calls to the webhooks of one host at the same time.",
    "push_coalesce_ms": "0 sends every event; otherwise what comes within so many milliseconds is sent as one Task.",
    "idempotency": "Which messages are recognised when they come again: auto (those whose messageId is a UUID, and all"
    " of clients that activate idempotency/v1), always, or asked (only the latter).",
    "idempotency_ttl_s": "How long a message is recognised, in seconds.",
    "idempotency_max": "How many messages are remembered at most; the oldest are forgotten.",
    "retention_days": "Days that a task is kept after its end; 0 keeps all.",
    "retention_tasks": "Ended tasks of an agent that are kept, the newest; 0 keeps all.",
    "min_free_mb": "Free space below which new tasks are refused with 503, in MB; running ones finish. 0 never.",
    "checkpoint_s": "Seconds between two signed checkpoints of all tasks' heads, which `roost evidence audit` goes by;"
    " 0 makes none.",
}


class Settings(Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8080
    listen: str = ""
    grpc: str = ""
    grpc_public: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    auth: str = "auto"
    token: str = ""
    admin_token: str = ""
    security_scheme: str = ""
    security_description: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_jwks: str = ""
    jwt_scopes: str = "agent:*"
    jwt_scope_claim: str = "scope"
    jwt_tenant_claim: str = "tenant"
    mtls_scopes: str = "agent:*"
    unix_scopes: str = "agent:*"
    unix_mode: str = "600"
    ownership: str = "principal"
    multi_tenant: str = "declared"
    quotas: str = ""
    auth_failures: int = 20
    open_metrics: bool = False
    cors_origins: str = ""
    hsts_s: int = 31_536_000
    card_alg: str = "EdDSA"
    data: str = "./.roost"
    store: str = ""
    wake: str = ""
    workers: int = 1
    secret_file: str = ""
    memory: bool = False
    root: str = ""
    a2a_03: bool = True
    openai: bool = True
    openai_cancel: bool = False
    mcp: bool = True
    public_url: str = ""
    trusted_proxy: str = ""
    max_body: int = 8 * 1024 * 1024
    max_parts: int = 1000
    max_metadata: int = 64 * 1024
    max_headers: int = 100
    max_head_bytes: int = 32 * 1024
    head_s: float = 10.0
    write_s: float = 60.0
    max_connections: int = 10_000
    log_level: str = "info"
    log_format: str = "auto"
    drain_s: float = 5.0
    push: bool = True
    push_allow_hosts: str = ""
    push_allow_cidrs: str = ""
    push_secret: str = ""
    push_attempts: int = 7
    push_retry_s: float = 1.0
    push_per_host: int = 8
    push_coalesce_ms: int = 0
    idempotency: str = "auto"
    idempotency_ttl_s: int = 86_400
    idempotency_max: int = 100_000
    retention_days: float = 30.0
    retention_tasks: int = 0
    min_free_mb: int = 256
    checkpoint_s: float = 3600.0

    def networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        return [ipaddress.ip_network(item.strip()) for item in self.trusted_proxy.split(",") if item.strip()]

    def grpc_address(self) -> tuple[str, int]:
        """Where to listen for gRPC, if anywhere."""
        return parse_place(self.grpc)

    def origins(self) -> list[str]:
        return [item.strip() for item in self.cors_origins.split(",") if item.strip()]


SECRETS = frozenset({"push_secret", "token", "admin_token"})
"""Shown to nobody, not even by `roost config`."""

NO_FLAG = frozenset({"token", "admin_token"})
"""Only by variable or file: everyone on the machine can read a command line."""

ALIASES = {
    "push_allow_hosts": "PUSH_NOTIFICATION_ALLOWED_HOSTS",
    "push_allow_cidrs": "PUSH_NOTIFICATION_ALLOWED_CIDRS",
    "idempotency_ttl_s": "AIWG_IDEMPOTENCY_TTL",
    "idempotency_max": "AIWG_IDEMPOTENCY_MAX_ENTRIES",
    "security_scheme": "AGENT_SECURITY_SCHEME",
    "security_description": "AGENT_SECURITY_DESCRIPTION",
}
"""Variables of the systems that Roost takes over from; read after our own."""


class Sourced(NamedTuple):
    name: str
    value: Any
    source: str
    """default, roost.toml, the variable's name, or the flag's name."""


class SettingError(Exception):
    """A setting has a value that cannot be used; the message says where it came from."""


def read(
    flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> list[Sourced]:
    """Each setting with its value and where it came from. A flag that is None was not given."""
    file = (folder or Path.cwd()) / "roost.toml"
    in_file = _read_file(file)
    found = []
    for name, default in _defaults().items():
        variable, flag = f"ROOST_{name.upper()}", f"--{name.replace('_', '-')}"
        if flags.get(name) is not None:
            found.append(Sourced(name, _typed(name, flags[name], flag), flag))
        elif (given := _given(name, variable, environ)) is not None:
            found.append(Sourced(name, _typed(name, environ[given], given), given))
        elif name in in_file:
            found.append(Sourced(name, _typed(name, in_file[name], str(file)), "roost.toml"))
        else:
            found.append(Sourced(name, default, "default"))
    _check(found)
    return found


def check_together(settings: Settings) -> None:
    """What each setting alone cannot tell."""
    if settings.store and settings.memory:
        raise SettingError("store and memory cannot be together: choose where the journal is")
    if settings.wake and not settings.store:
        raise SettingError("wake is for several hosts on one PostgreSQL: give --store postgresql://... too")
    if settings.workers > 1 and not settings.store:
        raise SettingError("more than one worker needs PostgreSQL: give --store postgresql://...; SQLite is for one")
    if settings.token and settings.token == settings.admin_token:
        raise SettingError("token and admin_token are the same: whoever may call agents would be an admin")
    if settings.workers > 1 and settings.grpc and not settings.grpc_address()[1]:
        raise SettingError("several workers share one port for gRPC: name it, not 0")
    if settings.jwt_issuer and not settings.jwt_audience:
        raise SettingError(
            "jwt_issuer without jwt_audience would accept tokens that were made for others: give --jwt-audience too"
        )
    if settings.jwt_audience and not settings.jwt_issuer:
        raise SettingError("jwt_audience says for whom JWTs must be, and jwt_issuer whose: give --jwt-issuer too")
    if settings.ownership == "tenant" and any(
        k == "principal" and w == "mb" for k, _, w in parse_quotas(settings.quotas).limits
    ):
        raise SettingError("where tasks belong to the tenant no principal has any of its own: use tenant.mb in quotas")
    if settings.store and not settings.secret_file:
        raise SettingError(
            "with PostgreSQL the key of secrets is not beside the data: give --secret-file, the same file to every"
            " host. `roost secret FILE` makes one"
        )


def _given(name: str, variable: str, environ: Mapping[str, str]) -> str | None:
    return next((known for known in (variable, ALIASES.get(name, variable)) if known in environ), None)


def settings_of(sourced: list[Sourced]) -> Settings:
    return Settings(**{item.name: item.value for item in sourced})


def shown(item: Sourced) -> Any:
    """The value, without a secret that is in it."""
    if item.name in SECRETS and item.value:
        return "***"
    return without_password(item.value) if item.name in URLS else item.value


URLS = frozenset({"store", "wake", "jwt_issuer", "jwt_jwks"})


def without_password(url: str) -> str:
    parts = urlsplit(url)
    if not parts.netloc:
        return url
    query = [item for item in parts.query.split("&") if not _SECRET.search(item.partition("=")[0])]
    parts = parts._replace(query="&".join(query))
    place = parts.netloc.rpartition("@")
    user = place[0].partition(":")[0]
    return parts._replace(netloc=f"{user}@{place[2]}" if user else place[2]).geturl()


def replace(settings: Settings, **changes: Any) -> Settings:
    return msgspec.structs.replace(settings, **changes)


_AT_LEAST = {
    "workers": 1,
    "push_attempts": 1,
    "push_per_host": 1,
    "push_coalesce_ms": 0,
    "auth_failures": 1,
    "hsts_s": 0,
    "max_parts": 1,
    "max_metadata": 0,
    "max_headers": 1,
    "max_head_bytes": 1024,
    "max_connections": 1,
    "idempotency_ttl_s": 1,
    "idempotency_max": 1,
    "retention_days": 0,
    "retention_tasks": 0,
    "min_free_mb": 0,
    "checkpoint_s": 0,
}


_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)
_CHOICES = {
    "auth": ("auto", "required", "open"),
    "ownership": ("principal", "tenant"),
    "multi_tenant": ("off", "declared", "enforced"),
    "card_alg": ("EdDSA", "ES256"),
}


def _words(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _is_mode(text: str) -> bool:
    return len(text) in (3, 4) and all(digit in "01234567" for digit in text)


def _try(require: Callable[[str, bool, str], None], name: str, parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        require(name, False, str(error))


def parse_place(text: str) -> tuple[str, int]:
    """host:port or [v6]:port. ValueError for anything else."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in bare) != (bare != host):
        raise ValueError("give host:port or [v6]:port")
    return bare, int(port)


def _is_postgres(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("postgresql", "postgres") and len(parts.path) > 1


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(Settings)}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingError(f"{file}: {error}") from error
    unknown = sorted(set(values) - set(_defaults()))
    if unknown:
        raise SettingError(f"{file}: unknown setting {', '.join(unknown)}; `roost config` lists those there are")
    return values


def _typed(name: str, value: Any, source: str) -> Any:
    kind = get_type_hints(Settings)[name]
    if kind is bool and isinstance(value, str):
        value = {"1": True, "0": False, "true": True, "false": False}.get(value.strip().lower(), value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        value = "***" if name in SECRETS else value
        raise SettingError(f"{source}: {value!r} cannot be {name}: {error}") from None


def _check(found: list[Sourced]) -> None:
    by_name = {item.name: item for item in found}

    def require(name: str, holds: bool, what: str) -> None:
        if not holds:
            item = by_name[name]
            raise SettingError(f"{name} is {shown(item)!r} (from {item.source}): {what}")

    require("port", 0 <= by_name["port"].value <= 65535, "it must be 0 to 65535")
    for name in ("grpc", "grpc_public"):
        if by_name[name].value:
            _try(require, name, parse_place, by_name[name].value)
    require("max_body", by_name["max_body"].value > 0, "it must be positive")
    require("drain_s", by_name["drain_s"].value >= 0, "it must not be negative")
    for name, least in _AT_LEAST.items():
        require(name, by_name[name].value >= least, f"it must be at least {least}")
    require("push_retry_s", by_name["push_retry_s"].value > 0, "it must be positive")
    require("idempotency", by_name["idempotency"].value in ("auto", "always", "asked"), "see --help")
    store = by_name["store"].value
    require("store", not store or _is_postgres(store), "give postgresql://user@host/database, or a folder with --data")
    wake = by_name["wake"].value
    require("wake", not wake or urlsplit(wake).scheme in ("nats", "tls"), "give nats://host:port")
    for name, words in _CHOICES.items():
        require(name, by_name[name].value in words, f"it is one of {', '.join(words)}")
    for item in _words(by_name["security_scheme"].value):
        require("security_scheme", item in SCHEMES, f"{item!r} is none of {', '.join(SCHEMES)}")
    require("unix_mode", _is_mode(by_name["unix_mode"].value), "give permissions in octal, such as 600 or 660")
    for name in ("head_s", "write_s"):
        require(name, by_name[name].value > 0, "it must be positive")
    for name in ("jwt_scopes", "mtls_scopes", "unix_scopes"):
        _try(require, name, lambda text: parse_scopes(text.split(",")), by_name[name].value)
    _try(require, "quotas", parse_quotas, by_name["quotas"].value)
    for item in _words(by_name["cors_origins"].value):
        parts = urlsplit(item)
        exact = parts.scheme in ("http", "https") and parts.hostname and item == f"{parts.scheme}://{parts.netloc}"
        require("cors_origins", bool(exact), f"{item!r} is no origin: give https://host[:port], without a path or *")
    for name in ("jwt_issuer", "jwt_jwks"):
        url = by_name[name].value
        require(name, not url or urlsplit(url).scheme in ("http", "https"), "give an http(s) URL")
    require("log_level", by_name["log_level"].value in ("debug", "info", "warning", "error"), "see --help")
    require("log_format", by_name["log_format"].value in ("text", "json", "auto"), "see --help")
    url = by_name["public_url"].value
    if url:
        parts = urlsplit(url)
        require("public_url", parts.scheme in ("http", "https") and bool(parts.hostname), "give http(s)://host[:port]")
        require("public_url", not parts.query and not parts.fragment, "it must have no query and no fragment")
    for item in by_name["trusted_proxy"].value.split(","):
        try:
            if item.strip():
                ipaddress.ip_network(item.strip())
        except ValueError as error:
            require("trusted_proxy", False, str(error))
    for item in by_name["push_allow_cidrs"].value.split(","):
        try:
            if item.strip():
                ipaddress.ip_network(item.strip())
        except ValueError as error:
            require("push_allow_cidrs", False, str(error))
