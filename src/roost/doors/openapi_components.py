"""The parts of /openapi.json that operations refer to: schemas, parameters, errors and security schemes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from roost.agents.agent import ID
from roost.doors import openapi_schemas
from roost.doors.access import API_KEY_NAME
from roost.doors.door import CALLER, KNOWN, PUBLIC
from roost.doors.guard import SUPPORTED_VERSION
from roost.doors.openai.shapes import OpenAIError
from roost.identity.principal import TENANT_ID
from roost.protocol.operations import OPERATIONS, Operation

Schema = dict[str, Any]

JSON, A2A, PROBLEM = "application/json", "application/a2a+json", "application/problem+json"
BINDING = (A2A, JSON)
"""The media types of the HTTP+JSON binding; the first unless Accept prefers the other."""
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
"""A part has exactly one of these fields, so it has one of these types."""
EXACTLY_ONE = ("SendMessageResponse", "StreamResponse")
AT_MOST_ONE = ("OAuthFlows", *EXACTLY_ONE)
EMPTY: Schema = {"type": "object", "maxProperties": 0}
RPC_ID: Schema = {"type": ["string", "number", "null"]}

SCHEMES: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of this host: `roost token create`"},
    "apiKey": {"type": "apiKey", "in": "header", "name": API_KEY_NAME, "description": "The same token"},
    "jwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "mtls": {"type": "mutualTLS", "description": "A certificate of an authority that the host trusts"},
}
"""The schemes that OpenAPI can express. It cannot express a Unix socket."""

PARAMETERS: dict[str, Schema] = {
    "Agent": {
        "name": "agent",
        "in": "path",
        "required": True,
        "description": "GET /agents/ lists the agents",
        "schema": {"type": "string", "pattern": f"^{ID.pattern}$"},
    },
    "Version": {
        "name": "A2A-Version",
        "in": "header",
        "required": True,
        "description": "Without it version 0.3 is meant; it may be in the query instead",
        "schema": {"type": "string", "enum": [SUPPORTED_VERSION]},
    },
    "DialectVersion": {
        "name": "A2A-Version",
        "in": "header",
        "description": "Not needed if A2A-Extensions names an extension of agentic-sandbox. Without either, A2A 0.3 is"
        " meant, which has some of these paths",
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
        "description": "The session from the response to `initialize`; absent in versions without sessions",
        "schema": {"type": "string"},
    },
    "MCPVersion": {
        "name": "MCP-Protocol-Version",
        "in": "header",
        "description": "The negotiated version of MCP, or 2026-07-28 and later for requests without a session",
        "schema": {"type": "string"},
    },
    "LastEvent": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "Continue after this event, even if the task is over",
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    },
}


class Demands(NamedTuple):
    """The credentials that the host demands, as names of schemes."""

    agents: tuple[str, ...]
    """The schemes for calls of agents; empty on an open host."""
    always: tuple[str, ...]
    """The schemes for routes that always need a credential."""
    openid_url: str = ""


class Describer:
    """Collects the types that operations refer to, and describes what they have in common."""

    def __init__(self, demands: Demands) -> None:
        self.demands = demands
        self.kinds: dict[str, type[Any]] = {}
        self.bodies: dict[str, Schema] = {}
        """Schemas that are not a type of their own."""
        for kind in [operation.request for operation in OPERATIONS] + RESULTS:
            self.reference(kind)

    def reference(self, kind: type[Any]) -> Schema:
        self.kinds[kind.__name__] = kind
        return named(kind.__name__)

    def schema_of(self, kind: type[Any]) -> Schema:
        return self._made([kind])[kind.__name__]

    def body(self, name: str, schema: Schema) -> Schema:
        self.bodies[name] = schema
        return named(name)

    def schemas(self) -> dict[str, Schema]:
        made = self._made(list(self.kinds.values()))
        for name in AT_MOST_ONE:
            made[name]["maxProperties"] = 1
        for name in EXACTLY_ONE:
            made[name]["minProperties"] = 1
        made["SecurityScheme"] |= _one_or_none(made["SecurityScheme"])
        made |= _parts(made["Part"])
        made["Role"]["enum"].remove("ROLE_UNSPECIFIED")  # refused in every message
        made["TaskStatus"]["properties"]["timestamp"]["format"] = "date-time"
        for operation in OPERATIONS:
            kind = operation.request
            required = ["method", "params"] if "required" in made[kind.__name__] else ["method"]
            parts = {
                "id": RPC_ID,
                "method": {"type": "string", "const": operation.name},
                "params": named(kind.__name__),
            }
            made[call_of(operation.name)] = _envelope(parts, required)
        result = {"anyOf": [*(named(kind.__name__) for kind in RESULTS), EMPTY]}
        made["RpcResult"] = _envelope({"id": RPC_ID, "result": result}, ["id", "result"])
        return made | self.bodies

    @staticmethod
    def _made(kinds: list[type[Any]]) -> dict[str, Schema]:
        _, found = msgspec.json.schema_components(kinds, ref_template=named("{name}")["$ref"])
        return {name: _tidy(schema) for name, schema in found.items()}

    def security(self, access: str) -> list[dict[str, list[str]]]:
        """The security requirement of a route: any one of the schemes, with any one of the scopes."""
        if access == PUBLIC:
            return []
        is_scoped = access not in (KNOWN, CALLER)
        schemes = self.demands.always if is_scoped else self.demands.agents
        scopes = [[scope] for scope in access.split()] if is_scoped else [[]]
        return [{scheme: scope} for scheme in schemes if scheme in SCHEMES for scope in scopes]

    def security_schemes(self) -> dict[str, Schema]:
        found = {scheme: SCHEMES[scheme] for scheme in self.demands.always if scheme in SCHEMES}
        if "jwt" in found and self.demands.openid_url:
            found["jwt"] = {"type": "openIdConnect", "openIdConnectUrl": self.demands.openid_url}
        return found

    def path_parameters(self, template: str) -> list[Schema]:
        return [parameter("Agent") if name == "agent" else in_path(name) for name in names(template)]


RESULTS = list(dict.fromkeys(operation.response for operation in OPERATIONS if operation.response is not None))
"""The types of JSON-RPC's results."""


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def content(media_types: Iterable[str], schema: Schema) -> Schema:
    return {media_type: {"schema": schema} for media_type in media_types}


# Schemas


def _parts(part: Schema) -> dict[str, Schema]:
    fields = part["properties"]
    common = {name: schema for name, schema in fields.items() if name not in PARTS}
    made: dict[str, Schema] = {
        kind: {"title": kind, "type": "object", "properties": {name: fields[name], **common}, "required": [name]}
        for name, kind in PARTS.items()
    }
    return {**made, "Part": {"title": "Part", "oneOf": [named(kind) for kind in made]}}


def _one_or_none(schema: Schema) -> Schema:
    """Allow at most one of the fields, beside others that are not of the schema: cards may have those of A2A 0.3."""
    each = [{"required": [name]} for name in schema["properties"]]
    return {"oneOf": [*each, {"not": {"anyOf": each}}]}


def call_of(method: str) -> str:
    """Return the name of the schema of a JSON-RPC request."""
    return f"{method}Call"


def _envelope(parts: Schema, required: list[str]) -> Schema:
    version = {"type": "string", "const": "2.0"}
    return {"type": "object", "properties": {"jsonrpc": version, **parts}, "required": ["jsonrpc", *required]}


def _tidy(schema: Any) -> Any:
    """Drop `null` from optional fields: the readers here accept it, but nothing is written so."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if (key, value) != ("required", [])}
    if "default" in tidy and tidy["default"] is None:
        del tidy["default"]
        others = [option for option in tidy.pop("anyOf") if option != {"type": "null"}]
        return {**tidy, **others[0]} if len(others) == 1 else {**tidy, "anyOf": others}
    strings = all(isinstance(value, str) for value in tidy.get("enum", [0]))
    return {"type": "string", **tidy} if strings else tidy


# Errors


def responses(describer: Describer) -> dict[str, Schema]:
    """The errors of each door, in its form."""
    found = {
        f"{form}{status}": _error(status, content(media_types, describer.reference(kind)))
        for form, (kind, media_types) in FORMS.items()
        for status in ERRORS
    }
    either = {"anyOf": [named("SandboxError"), named("OldRestError")]}
    for status in ERRORS:  # at the dialect's paths, what is not the dialect's is answered as by A2A 0.3
        found[f"Sandbox{status}"]["content"][JSON] = {"schema": either}
    either = {"anyOf": [named("RpcError"), named("RestError")]}
    for status in ERRORS:  # a path whose agent has a colon is one of HTTP+JSON without a tenant
        found[f"RpcOrRest{status}"] = _error(status, {**content([JSON], either), **content([A2A], named("RestError"))})
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


# Parameters


def names(template: str) -> list[str]:
    return re.findall(r"{(\w+)}", template)


def without(schema: Schema, names: list[str]) -> Schema:
    """Return the schema without the fields that are in the path."""
    left = {name: value for name, value in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {"type": "object", "properties": left, **({"required": required} if required else {})}


def parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def headers(operation: Operation) -> list[Schema]:
    last_event = ["LastEvent"] if operation.resumes else []
    return [parameter(header) for header in ("Version", "Extensions", "Tenant", *last_event)]


def in_path(name: str) -> Schema:
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/:]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def in_query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "schema": schema}
