"""Every setting, declared once: its name, type, bounds, sentence and default.

To add a setting, add a field to Settings. Its variable, its key in roost.toml and its flag follow from its name;
`roost serve --help`, `roost config` and the table in docs/settings.md (`python -m tools.settings_table`) from the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from roost import settings_checks as checks
from roost.identity.quotas import parse as parse_quotas


class Validator(NamedTuple):
    """A function that checks a text other than the default, and raises a ValueError that says what to give instead."""

    call: Callable[[str], object]


class Alias(NamedTuple):
    """A variable of a system that Roost replaces. It is read if our own variable is not set."""

    variable: str


class Mark(Enum):
    SECRET = auto()
    """The value is never shown, not even by `roost config`."""
    NO_FLAG = auto()
    """There is no flag, because everyone on the machine can read a command line."""


Count = Annotated[int, Meta(ge=1)]
CountOrOff = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
NumberOrOff = Annotated[float, Meta(ge=0)]
Place = Annotated[str, Validator(checks.parse_place)]
HTTPURL = Annotated[str, Validator(checks.http_url)]
Scopes = Annotated[str, Validator(checks.scopes)]
Networks = Annotated[str, Validator(checks.each(checks.network))]


class Settings(Struct, frozen=True, kw_only=True):
    host: Annotated[str, "The address to listen on. Without credentials, it must be a loopback address."] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), "The port to listen on; 0 picks a free one."] = 8080
    listen: Annotated[
        str,
        "Where to listen, instead of host and port: a comma-separated list of host:port and unix:PATH. Callers on a"
        " Unix socket are identified by their user id.",
        Validator(checks.each(checks.listener)),
    ] = ""
    grpc: Annotated[Place, "Where to serve gRPC as well, as host:port; port 0 picks a free one. Off by default."] = ""
    grpc_public: Annotated[
        Place,
        "The host:port at which clients reach gRPC, as written in cards. By default, the bound address, on the host of"
        " public_url if that is set.",
    ] = ""
    tls_cert: Annotated[str, "The certificate chain (PEM) to serve TLS with. It is reloaded when the file changes."] = (
        ""
    )
    tls_key: Annotated[str, "The private key of tls_cert (PEM). Other users must not be able to read the file."] = ""
    client_ca: Annotated[str, "The CA certificates (PEM) whose client certificates are accepted as credentials."] = ""
    auth: Annotated[
        Literal["auto", "required", "open"],
        "Who may call agents: auto (anyone on this machine, until a credential exists), required (only callers with a"
        " credential), or open (anyone; allowed only on loopback).",
    ] = "auto"
    token: Annotated[
        str,
        "A first bearer token for the agents, meant for containers: at least 16 characters. Only its hash is stored.",
        Mark.SECRET,
        Mark.NO_FLAG,
    ] = ""
    admin_token: Annotated[
        str, "A first bearer token for the admin routes, stored in the same way.", Mark.SECRET, Mark.NO_FLAG
    ] = ""
    security_scheme: Annotated[
        str,
        "The kinds of credentials that are accepted and declared in cards, comma separated: bearer, apiKey, jwt, mtls,"
        " unix. By default, all that are configured.",
        Validator(checks.each(checks.scheme)),
        Alias("AGENT_SECURITY_SCHEME"),
    ] = ""
    security_description: Annotated[
        str, "The text in cards that says how to get a credential.", Alias("AGENT_SECURITY_DESCRIPTION")
    ] = ""
    jwt_issuer: Annotated[HTTPURL, "The issuer (iss) whose JWTs are accepted."] = ""
    jwt_audience: Annotated[str, "The audience (aud) that JWTs must be issued for."] = ""
    jwt_jwks: Annotated[HTTPURL, "The URL of the issuer's public keys. By default, OpenID discovery finds it."] = ""
    jwt_scopes: Annotated[Scopes, "The scopes of a JWT that names none of Roost's, comma separated."] = "agent:*"
    jwt_scope_claim: Annotated[str, "The JWT claim that holds the scopes, as a list or space separated."] = "scope"
    jwt_tenant_claim: Annotated[str, "The JWT claim that holds the tenant, or a list of tenants."] = "tenant"
    mtls_scopes: Annotated[Scopes, "The scopes of callers with a client certificate, comma separated."] = "agent:*"
    unix_scopes: Annotated[Scopes, "The scopes of callers on a Unix socket, comma separated."] = "agent:*"
    unix_mode: Annotated[str, "The file permissions of Unix sockets, in octal.", Validator(checks.mode)] = "600"
    ownership: Annotated[
        Literal["principal", "tenant"], "Who owns a task: the principal that sent it, or its whole tenant."
    ] = "principal"
    multi_tenant: Annotated[
        Literal["off", "declared", "enforced"],
        "Whether multi-tenant/v1 is off, declared (a message may name a tenant), or enforced (it must).",
    ] = "declared"
    quotas: Annotated[
        str,
        "Limits, comma separated, each as kind[:name].what=number. The kind is principal, tenant, agent or surface."
        " What is limited is rate (requests per minute; for a tenant, messages), tasks, streams or mb. Example:"
        " tenant.rate=100,agent:trip.tasks=5",
        Validator(parse_quotas),
    ] = ""
    auth_failures: Annotated[Count, "Refused credentials per minute from one address, before it gets 429."] = 20
    open_metrics: Annotated[bool, "Serve /metrics without a credential."] = False
    cors_origins: Annotated[
        str,
        "The origins of web pages that may call this host, comma separated. Example: https://app.example.com",
        Validator(checks.each(checks.origin)),
    ] = ""
    hsts_s: Annotated[
        CountOrOff, "Seconds for which browsers use only https (HSTS), sent where this host serves TLS; 0 sends none."
    ] = 31_536_000
    card_alg: Annotated[Literal["EdDSA", "ES256"], "The algorithm of new keys that sign cards; EdDSA is Ed25519."] = (
        "EdDSA"
    )
    data: Annotated[str, "The folder that holds the journal."] = "./.roost"
    store: Annotated[
        str,
        "The PostgreSQL database that holds the journal, for several hosts: postgresql://user@host/database. By"
        " default, SQLite in the data folder.",
        Validator(checks.postgres_url),
    ] = ""
    wake: Annotated[
        str,
        "The NATS server through which hosts on one PostgreSQL notify each other: nats://host:port. Without it, they"
        " use NOTIFY.",
        Validator(checks.nats_url),
    ] = ""
    workers: Annotated[Count, "Host processes on this machine. More than one needs PostgreSQL."] = 1
    secret_file: Annotated[
        str,
        "The file with the key that encrypts secrets in the store. By default, secret.key in the data folder. Required"
        " with PostgreSQL: the same file on every machine.",
    ] = ""
    memory: Annotated[bool, "Keep nothing on disk. All tasks are lost when the process ends."] = False
    root: Annotated[str, "The agent that is served at the root path. Implied when a single .py file is served."] = ""
    a2a_03: Annotated[
        bool, "Serve A2A 0.3 as well: JSON-RPC, REST below /v1/, gRPC, its card paths, and its fields in cards."
    ] = True
    strict: Annotated[
        bool,
        "Serve A2A clients nothing but A2A 1.0: no A2A 0.3, no paths of agentic-sandbox, nothing below /v1/ at the"
        " root, and cards without the fields of 0.3.",
    ] = False
    openai: Annotated[bool, "Serve agents to OpenAI clients as well, below /openai/v1/."] = True
    openai_cancel: Annotated[
        bool, "Cancel the task of an OpenAI client that closes its connection. Otherwise the task continues."
    ] = False
    mcp: Annotated[bool, "Serve agents as tools to MCP clients as well, at /mcp."] = True
    public_url: Annotated[
        str,
        "The URL at which clients reach this host, as written in cards. By default, the bound address.",
        Validator(checks.base_url),
    ] = ""
    trusted_proxy: Annotated[
        Networks, "The networks (CIDR) of proxies whose forwarded headers are trusted, comma separated."
    ] = ""
    max_body: Annotated[Count, "The largest request body, in bytes. A larger one gets 413."] = 8 * 1024 * 1024
    max_parts: Annotated[Count, "The most parts that a message may have."] = 1000
    max_metadata: Annotated[CountOrOff, "The largest metadata of a message, a part or a request, in bytes of JSON."] = (
        64 * 1024
    )
    max_task_mb: Annotated[
        Count, "The largest task that still takes answers, in MB of JSON. A larger one costs others time."
    ] = 24
    max_values: Annotated[
        Count, "The most values (of all objects and lists together) that the JSON of a request may have."
    ] = 250_000
    max_depth: Annotated[
        int, Meta(ge=10, le=100), "The deepest nesting of objects and lists in the JSON of a request."
    ] = 100
    max_digits: Annotated[int, Meta(ge=20, le=4000), "The most digits of a number in the JSON of a request."] = 1000
    max_headers: Annotated[Count, "The most headers that a request may have. More get 431."] = 100
    max_head_bytes: Annotated[
        int, Meta(ge=1024), "The largest request line and headers together, in bytes. Larger ones get 431."
    ] = 32 * 1024
    head_s: Annotated[Seconds, "Seconds a client has to send a request's headers, and for each pause in its body."] = (
        10.0
    )
    write_s: Annotated[Seconds, "Seconds a client may read nothing of its response, before it is disconnected."] = 60.0
    max_unsent_mb: Annotated[
        int,
        Meta(ge=1, le=65536),
        "The most memory, in MB per process, for large responses that their clients have not read yet. One caller may"
        " use a quarter of it. Further large responses wait, at most write_s.",
    ] = 128
    max_connections: Annotated[Count, "The most open connections per process. Further ones get 503."] = 10_000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], "The least severe level to log; debug logs every request."
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"], "The form of the log; auto is text on a terminal and JSON otherwise."
    ] = "auto"
    drain_s: Annotated[
        NumberOrOff,
        "Seconds for running requests and tasks to finish when the host stops. Other hosts, or the next start, continue"
        " the tasks that are left.",
    ] = 5.0
    push: Annotated[
        bool,
        "Call webhooks. When this is off, cards declare no push notifications, new webhooks are refused, and existing"
        " ones wait.",
    ] = True
    push_allow_hosts: Annotated[
        str,
        "Hosts that webhooks may use although they are not public, comma separated: name, name:port or *.name.",
        Alias("PUSH_NOTIFICATION_ALLOWED_HOSTS"),
    ] = ""
    push_allow_cidrs: Annotated[
        Networks,
        "Networks (CIDR) that webhooks may use although they are not public, comma separated.",
        Alias("PUSH_NOTIFICATION_ALLOWED_CIDRS"),
    ] = ""
    push_secret: Annotated[
        str, "The key that signs webhook calls (X-AIWG-Signature). Without it, they are unsigned.", Mark.SECRET
    ] = ""
    push_attempts: Annotated[Count, "Attempts to deliver one event to a webhook, before it is a dead letter."] = 7
    push_retry_s: Annotated[Seconds, "Seconds before the second attempt. Each further wait is about twice as long."] = (
        1.0
    )
    push_per_host: Annotated[Count, "Calls to the webhooks of one host at the same time."] = 8
    push_coalesce_ms: Annotated[
        CountOrOff, "Events that arrive within this many milliseconds are sent as one Task; 0 sends every event."
    ] = 0
    idempotency: Annotated[
        Literal["auto", "always", "asked"],
        "Which repeated messages are recognised: auto (those whose messageId is a UUID), always (all), or asked (only"
        " those from clients that activate idempotency/v1).",
    ] = "auto"
    idempotency_ttl_s: Annotated[Count, "Seconds for which a message is recognised.", Alias("AIWG_IDEMPOTENCY_TTL")] = (
        86_400
    )
    idempotency_max: Annotated[
        Count,
        "The most messages that are remembered. Beyond that, the oldest are forgotten.",
        Alias("AIWG_IDEMPOTENCY_MAX_ENTRIES"),
    ] = 100_000
    retention_days: Annotated[NumberOrOff, "Days for which a task is kept after it ends; 0 keeps all."] = 30.0
    unserved_days: Annotated[
        NumberOrOff,
        "Days after which unfinished tasks of an agent that no host serves any more are FAILED; 0 keeps them.",
    ] = 7.0
    retention_tasks: Annotated[CountOrOff, "The most ended tasks of an agent, the newest are kept; 0 keeps all."] = 0
    min_free_mb: Annotated[
        CountOrOff,
        "Free disk space, in MB, below which new tasks are refused with 503. Running ones finish. 0 turns this off.",
    ] = 256
    checkpoint_s: Annotated[
        NumberOrOff,
        "Seconds between signed checkpoints of all tasks, which `roost evidence audit` needs; 0 makes none.",
    ] = 3600.0

    @property
    def serves_a2a_03(self) -> bool:
        return self.a2a_03 and not self.strict

    def networks(self) -> list[IPv4Network | IPv6Network]:
        return [ip_network(item) for item in checks.words(self.trusted_proxy)]

    def grpc_address(self) -> tuple[str, int]:
        """The host and port to serve gRPC on. `grpc` must be set."""
        return checks.parse_place(self.grpc)

    def origins(self) -> list[str]:
        return checks.words(self.cors_origins)


Value = str | int | float | bool


class Setting(NamedTuple):
    """One field of Settings, with everything in its annotation."""

    name: str
    type: Any
    """The annotated type, with which msgspec checks a value."""
    default: Value
    sentence: str
    expected: str
    """A description of the values that are accepted."""
    choices: tuple[str, ...]
    """The values to choose from, or () if any value of the type will do."""
    check: Callable[[str], object] | None
    alias: str
    marks: frozenset[Mark]

    @property
    def variable(self) -> str:
        return f"ROOST_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The flag that gives a value, or "" if there is none."""
        return "" if Mark.NO_FLAG in self.marks else f"--{self.name.replace('_', '-')}"


def _setting(name: str, annotation: Any, default: Value) -> Setting:
    kind, *about = get_args(annotation)
    bounds = next((item for item in about if isinstance(item, Meta)), Meta())
    choices = get_args(kind)  # of a Literal; other types have no arguments
    return Setting(
        name,
        annotation,
        default,
        next(item for item in about if isinstance(item, str)),
        f"{', '.join(choices[:-1])} or {choices[-1]}" if choices else _expected(kind, bounds),
        choices,
        next((item.call for item in about if isinstance(item, Validator)), None),
        next((item.variable for item in about if isinstance(item, Alias)), ""),
        frozenset(item for item in about if isinstance(item, Mark)),
    )


def _expected(kind: type[Value], bounds: Meta) -> str:
    what = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
    if bounds.le is not None:
        return f"{what} from {bounds.ge} to {bounds.le}"
    if bounds.ge is not None:
        return f"{what} of at least {bounds.ge}"
    return f"{what} above {bounds.gt}" if bounds.gt is not None else what


_HINTS = get_type_hints(Settings, include_extras=True)
SETTINGS = {
    field.name: _setting(field.name, _HINTS[field.name], field.default) for field in msgspec.structs.fields(Settings)
}
"""All settings by name, in the order of their declaration."""
