"""What the operations of /openapi.json refer to: schemas, parameters, errors, and ways to say who one is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from roost.agents.agent import ID
from roost.doors import jsonrpc, openapi_schemas
from roost.doors.access import API_KEY_NAME
from roost.doors.guard import SUPPORTED_VERSION
from roost.doors.openai.shapes import OpenAIError
from roost.identity.principal import TENANT_ID

Schema = dict[str, Any]

JSON, A2A, PROBLEM = "application/json", "application/a2a+json", "application/problem+json"
BINDING = (A2A, JSON)
"""What the HTTP+JSON binding speaks; the first unless Accept prefers the other."""
FORMS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "Rest": (openapi_schemas.RestError, BINDING),
    "Sandbox": (openapi_schemas.SandboxError, BINDING),
    "Old": (openapi_schemas.OldRestError, (JSON,)),
    "Rpc": (openapi_schemas.RpcError, (JSON,)),
    "Problem": (openapi_schemas.ProblemDetails, (PROBLEM,)),
    "OpenAI": (OpenAIError, (JSON,)),
}
ERRORS = ("400", "401", "403", "404", "409", "413", "422", "429", "502", "503")

PARTS = {"text": "TextPart", "raw": "RawPart", "url": "UrlPart", "data": "DataPart"}
"""A part has exactly one of these fields: to a client it is one of these types."""
EXACTLY_ONE = ("SendMessageResponse", "StreamResponse")
AT_MOST_ONE = ("OAuthFlows", "SecurityScheme", *EXACTLY_ONE)
EMPTY: Schema = {"type": "object", "maxProperties": 0}
RPC_ID: Schema = {"type": ["string", "number", "null"]}

SCHEMES: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of this host: `roost token create`"},
    "apiKey": {"type": "apiKey", "in": "header", "name": API_KEY_NAME, "description": "The same token"},
    "jwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "mtls": {"type": "mutualTLS", "description": "A certificate of an authority that the host was told of"},
}
"""Those that OpenAPI can say; it has no word for a Unix socket."""

PARAMETERS: dict[str, Schema] = {
    "Agent": {
        "name": "agent",
        "in": "path",
        "required": True,
        "description": "GET /agents/ lists them",
        "schema": {"type": "string", "pattern": f"^{ID.pattern}$"},
    },
    "Version": {
        "name": "A2A-Version",
        "in": "header",
        "required": True,
        "description": "Without it version 0.3 is meant; it may be in the query instead",
        "schema": {"type": "string", "enum": [SUPPORTED_VERSION]},
    },
    "Extensions": {
        "name": "A2A-Extensions",
        "in": "header",
        "description": "URIs of extensions to activate, comma separated",
        "schema": {"type": "string"},
    },
    "Tenant": {
        "name": "X-Tenant-Id",
        "in": "header",
        "description": "One of the credential's tenants; its first by default",
        "schema": {"type": "string", "pattern": f"^{TENANT_ID.pattern}$"},
    },
    "MCPSession": {
        "name": "Mcp-Session-Id",
        "in": "header",
        "description": "As `initialize` was answered; without it in the versions that have no sessions",
        "schema": {"type": "string"},
    },
    "MCPVersion": {
        "name": "MCP-Protocol-Version",
        "in": "header",
        "description": "Of MCP: as it was agreed on, or 2026-07-28 and later for requests without a session",
        "schema": {"type": "string"},
    },
    "LastEvent": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "Go on after this event, on a task that is over, too",
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    },
}


class Asked(NamedTuple):
    """What callers are asked for."""

    agents: tuple[str, ...]
    """Schemes of those who call agents; none on an open host."""
    always: tuple[str, ...]
    """Schemes of those who want what nobody has without a credential."""
    open_metrics: bool
    openid_url: str
    openai: bool = True
    """Clients of OpenAI are served."""
    mcp: bool = True
    """Those of MCP."""
    a2a_03: bool = True
    """Those of A2A 0.3."""


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def reference(kind: type[Any]) -> Schema:
    return named(kind.__name__)


def content(media_types: Iterable[str], schema: Schema) -> Schema:
    return {media_type: {"schema": schema} for media_type in media_types}


# Schemas


def schemas(kinds: Iterable[type[Any]], results: Sequence[type[Any]]) -> dict[str, Schema]:
    """Of these types and all that they are made of, by name; `results` are what JSON-RPC answers with."""
    _, found = msgspec.json.schema_components([*kinds, *results], ref_template=named("{name}")["$ref"])
    made: dict[str, Schema] = {name: _tidy(schema) for name, schema in found.items()}
    for name in AT_MOST_ONE:
        made[name]["maxProperties"] = 1
    for name in EXACTLY_ONE:
        made[name]["minProperties"] = 1
    made |= _parts(made["Part"])
    made["Role"]["enum"].remove("ROLE_UNSPECIFIED")  # refused in every message
    made["TaskStatus"]["properties"]["timestamp"]["format"] = "date-time"
    for method, (kind, _) in jsonrpc.METHODS.items():
        required = ["method", "params"] if "required" in made[kind.__name__] else ["method"]
        parts = {"id": RPC_ID, "method": {"type": "string", "const": method}, "params": reference(kind)}
        made[call_of(method)] = _envelope(parts, required)
    result = {"anyOf": [*map(reference, results), EMPTY]}
    made["RpcResult"] = _envelope({"id": RPC_ID, "result": result}, ["id", "result"])
    return made


def _parts(part: Schema) -> dict[str, Schema]:
    fields = part["properties"]
    common = {name: schema for name, schema in fields.items() if name not in PARTS}
    made: dict[str, Schema] = {
        kind: {"title": kind, "type": "object", "properties": {name: fields[name], **common}, "required": [name]}
        for name, kind in PARTS.items()
    }
    return {**made, "Part": {"title": "Part", "oneOf": [named(kind) for kind in made]}}


def call_of(method: str) -> str:
    """The name of the schema of a JSON-RPC request."""
    return f"{method}Call"


def _envelope(parts: Schema, required: list[str]) -> Schema:
    version = {"type": "string", "const": "2.0"}
    return {"type": "object", "properties": {"jsonrpc": version, **parts}, "required": ["jsonrpc", *required]}


def _tidy(schema: Any) -> Any:
    """What may be left out is not said to be null, too: readers here are lenient, and nothing is written so."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if (key, value) != ("required", [])}
    if "default" in tidy and tidy["default"] is None:
        del tidy["default"]
        others = [option for option in tidy.pop("anyOf") if option != {"type": "null"}]
        return {**tidy, **others[0]} if len(others) == 1 else {**tidy, "anyOf": others}
    return {"type": "string", **tidy} if "enum" in tidy else tidy


# Errors


def responses() -> dict[str, Schema]:
    """The errors of each surface, in its form."""
    found = {
        f"{form}{status}": _error(status, content(media_types, reference(kind)))
        for form, (kind, media_types) in FORMS.items()
        for status in ERRORS
    }
    either = {"anyOf": [reference(openapi_schemas.SandboxError), reference(openapi_schemas.OldRestError)]}
    for status in ERRORS:  # what is not the dialect's at its paths is answered as A2A 0.3 has it
        found[f"Sandbox{status}"]["content"][JSON] = {"schema": either}
    return found


def errors(form: str, statuses: Iterable[str]) -> Schema:
    return {status: {"$ref": f"#/components/responses/{form}{status}"} for status in statuses}


def answer(status: str, body: Schema) -> Schema:
    phrase = HTTPStatus(int(status)).phrase
    return {"description": phrase, "content": body} if body else {"description": phrase}


def _error(status: str, body: Schema) -> Schema:
    headers: Schema = {}
    if status == "401":
        headers["WWW-Authenticate"] = {"required": True, "schema": {"type": "string"}}
    if status in ("429", "503"):
        headers["Retry-After"] = {"description": "Seconds", "schema": {"type": "integer", "minimum": 0}}
    return {**answer(status, body), "headers": headers}


# Who one is


def security(schemes: Iterable[str], scopes: Iterable[str] = ()) -> list[dict[str, list[str]]]:
    """Any one of the schemes, with any one of the scopes."""
    known = [scheme for scheme in schemes if scheme in SCHEMES]
    needed = [[scope] for scope in scopes] or [[]]
    return [{scheme: scope} for scheme in known for scope in needed]


def security_schemes(asked: Asked) -> dict[str, Schema]:
    found = {scheme: SCHEMES[scheme] for scheme in asked.always if scheme in SCHEMES}
    if "jwt" in found and asked.openid_url:
        found["jwt"] = {"type": "openIdConnect", "openIdConnectUrl": asked.openid_url}
    return found


# Parameters


def names(template: str) -> list[str]:
    return re.findall(r"{(\w+)}", template)


def without(schema: Schema, names: list[str]) -> Schema:
    """A schema of what is not in the path."""
    left = {name: value for name, value in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {"type": "object", "properties": left, **({"required": required} if required else {})}


def parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def headers(name: str) -> list[Schema]:
    last_event = ["LastEvent"] if name == "SubscribeToTask" else []
    return [parameter(header) for header in ("Version", "Extensions", "Tenant", *last_event)]


def in_path(name: str) -> Schema:
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/:]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def in_query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "schema": schema}
