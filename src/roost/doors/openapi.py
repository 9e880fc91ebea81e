"""GET /openapi.json: every HTTP surface as an OpenAPI 3.1 document, made from the tables that serve it.

The bindings' paths come from routes.OPERATIONS and jsonrpc.METHODS, the admin surface from admin.ROUTES, OpenAI's and
MCP's from openai.ROUTES and mcp.ROUTES, the rest from routes.HOST_ROUTES. What a table does not say, such as the form
of an answer, is said here, once for each entry.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from roost.doors import admin, jsonrpc, mcp, openapi_schemas, rest, routes, sandbox
from roost.doors.a2a_03 import door as a2a_03
from roost.doors.cards import CARD_PATH, JWKS_PATH, OLD_CARD_PATHS
from roost.doors.catalog import CATALOG_PATH, MEDIA_TYPE
from roost.doors.evidence import KEYS_PATH as EVIDENCE_KEYS
from roost.doors.evidence import MEDIA_TYPE as BUNDLE
from roost.doors.openai import door as openai
from roost.doors.openai import shapes as openai_shapes
from roost.doors.openapi_components import (
    A2A,
    BINDING,
    EMPTY,
    JSON,
    PARAMETERS,
    Asked,
    Schema,
    answer,
    call_of,
    content,
    errors,
    headers,
    in_path,
    in_query,
    named,
    names,
    parameter,
    reference,
    responses,
    schemas,
    security,
    security_schemes,
    without,
)
from roost.doors.openapi_doors import OPENAI_RESULTS, add_old, mcp_route, openai_route, sandbox_operation
from roost.identity.scopes import ADMIN, METRICS
from roost.protocol import types
from roost.protocol.codec import encode

DESCRIPTION = """The A2A operations below `/agents/{agent}` are also below `/` for the agent that is bound to the root,
and with the agent's id once more in front, for clients that put a card's `tenant` into the path. What is too large, too
slow or too odd to be a request is answered 400, 408, 431 or 503 on any path."""
EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "Each `data` is a StreamResponse, in JSON-RPC the result of an answer; each `id` can be the"
            " Last-Event-ID of SubscribeToTask",
        }
    }
}

OPERATIONS: dict[rest.Handler, str] = {
    rest.send_message: "SendMessage",
    rest.stream_message: "SendStreamingMessage",
    rest.get_task: "GetTask",
    rest.list_tasks: "ListTasks",
    rest.cancel_task: "CancelTask",
    rest.subscribe_to_task: "SubscribeToTask",
    rest.create_push_config: "CreateTaskPushNotificationConfig",
    rest.get_push_config: "GetTaskPushNotificationConfig",
    rest.list_push_configs: "ListTaskPushNotificationConfigs",
    rest.delete_push_config: "DeleteTaskPushNotificationConfig",
    rest.extended_card: "GetExtendedAgentCard",
    sandbox.send_message: "SendMessage",
    sandbox.list_tasks: "ListTasks",
}
RESULTS: dict[str, type[Any] | None] = {
    "SendMessage": types.SendMessageResponse,
    "SendStreamingMessage": types.StreamResponse,
    "GetTask": types.Task,
    "ListTasks": types.ListTasksResponse,
    "CancelTask": types.Task,
    "SubscribeToTask": types.StreamResponse,
    "CreateTaskPushNotificationConfig": types.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": types.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": types.ListTaskPushNotificationConfigsResponse,
    "DeleteTaskPushNotificationConfig": None,
    "GetExtendedAgentCard": types.AgentCard,
}
ADMIN_RESULTS: dict[str, tuple[str, type[Any] | None]] = {
    "list_tokens": ("200", openapi_schemas.TokenList),
    "create_token": ("201", openapi_schemas.TokenMade),
    "revoke_token": ("200", openapi_schemas.TokenShown),
    "list_keys": ("200", openapi_schemas.KeyList),
    "rotate_key": ("200", openapi_schemas.KeyShown),
    "retire_key": ("204", None),
    "list_audit": ("200", openapi_schemas.AuditLines),
    "export_evidence": ("200", None),
    "get_task": ("200", openapi_schemas.TaskShown),
    "cancel_task": ("200", openapi_schemas.TaskShown),
}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
ADMIN_QUERIES: dict[str, dict[str, Schema]] = {
    "list_audit": {"before": _COUNT, "limit": _COUNT},
    "export_evidence": {
        "task": {"type": "string", "description": "Ids, comma separated"},
        "since": {
            "type": "string",
            "description": "A time (RFC 3339), an age (7d), or a checkpoint: number or number:digest",
        },
        "agent": {"type": "string"},
        "redact": {"type": "boolean"},
    },
}


class HostAnswer(NamedTuple):
    name: str
    content: dict[str, type[Any] | None]
    """By media type; None where it is no JSON."""
    asks: str = ""
    """anyone: a credential, where agents need one; metrics: that scope. Nothing by default."""
    more: tuple[str, ...] = ()
    """Statuses without a body, or with the same."""


CARD: dict[str, type[Any] | None] = {JSON: types.AgentCard, A2A: types.AgentCard}
KEYS: dict[str, type[Any] | None] = {"application/jwk-set+json": openapi_schemas.KeySet}
HEALTH: dict[str, type[Any] | None] = {JSON: openapi_schemas.HealthResponse}
HOST_ANSWERS = {
    "/": HostAnswer("GetIndex", {JSON: openapi_schemas.Index, "text/html": None}, "anyone"),
    "/agents/": HostAnswer("GetDirectory", {JSON: openapi_schemas.DirectoryResponse}, "anyone"),
    "/openapi.json": HostAnswer("GetOpenAPI", {JSON: None}, "anyone"),
    CATALOG_PATH: HostAnswer("GetCatalog", {MEDIA_TYPE: openapi_schemas.Catalog}, "anyone", more=("304",)),
    CARD_PATH: HostAnswer("GetFleetCard", CARD, more=("304",)),
    routes.AGENT + CARD_PATH: HostAnswer("GetAgentCard", CARD, more=("304",)),
    **{path: HostAnswer(f"GetFleetCard03{n}", {JSON: None}, more=("304",)) for n, path in enumerate(OLD_CARD_PATHS)},
    **{
        routes.AGENT + path: HostAnswer(f"GetAgentCard03{n}", {JSON: None}, more=("304",))
        for n, path in enumerate(OLD_CARD_PATHS)
    },
    JWKS_PATH: HostAnswer("GetKeys", KEYS),
    routes.AGENT + JWKS_PATH: HostAnswer("GetAgentKeys", KEYS),
    EVIDENCE_KEYS: HostAnswer("GetEvidenceKeys", KEYS),
    "/healthz": HostAnswer("GetHealthz", HEALTH),
    "/health": HostAnswer("GetHealth", HEALTH),
    "/readyz": HostAnswer("GetReadyz", HEALTH, more=("503",)),
    "/ready": HostAnswer("GetReady", HEALTH, more=("503",)),
    "/metrics": HostAnswer("GetMetrics", {"text/plain": None}, METRICS),
}


@lru_cache(8)
def document(base: str, version: str, asked: Asked) -> bytes:
    """`base` is the host's URL; `version` its release."""
    shared = schemas(
        [kind for kind, _ in jsonrpc.METHODS.values()]
        + [kind for known in HOST_ANSWERS.values() for kind in known.content.values() if kind is not None]
        + [kind for _, kind in ADMIN_RESULTS.values() if kind is not None]
        + [route.body for route in admin.ROUTES if route.body is not None]
        + [*OPENAI_RESULTS.values(), *[route.body for route in openai.ROUTES if route.body is not None]]
        + [
            openapi_schemas.RestError,
            openapi_schemas.SandboxError,
            openapi_schemas.OldRestError,
            openapi_schemas.RpcError,
            openapi_schemas.ProblemDetails,
            openai_shapes.OpenAIError,
        ],
        list(dict.fromkeys(kind for kind in RESULTS.values() if kind is not None)),
    )
    paths: dict[str, Schema] = {}
    for route in routes.OPERATIONS:
        found = _operation(route, shared, security(asked.agents))
        paths.setdefault(routes.AGENT + route.template, {})[route.method.lower()] = found
    for route in sandbox.ROUTES:
        found = sandbox_operation(_operation(route, shared, security(asked.agents)))
        paths.setdefault(routes.AGENT + route.template, {})[route.method.lower()] = found
    paths[routes.AGENT] = {"post": _json_rpc(security(asked.agents))}
    for method, template, summary in routes.HOST_ROUTES:
        paths.setdefault(template, {})[method.lower()] = _host_route(template, summary, asked)
    if asked.a2a_03:
        for method, template, summary in a2a_03.CARD_ROUTES:
            paths.setdefault(template, {})[method.lower()] = _host_route(template, summary, asked)
        for route in a2a_03.ROUTES:
            add_old(paths.setdefault(routes.AGENT + route.template, {}), route, security(asked.agents))
    for entry in admin.ROUTES:
        found = _admin_route(entry, security(asked.always, entry.scopes))
        paths.setdefault(admin.PREFIX + entry.template, {})[entry.method.lower()] = found
    for method, template, summary in mcp.ROUTES if asked.mcp else ():
        paths.setdefault(template, {})[method.lower()] = mcp_route(method, summary, security(asked.agents))
    if asked.openai:
        for one in openai.ROUTES:
            found = openai_route(one, one.template, security(asked.agents))
            paths.setdefault(openai.PREFIX + one.template, {})[one.method.lower()] = found
        alias = openai.ALIAS_ROUTE
        template = routes.AGENT + alias.template
        paths[template] = {alias.method.lower(): openai_route(alias, template, security(asked.agents))}
    return encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Roost",
                "version": version,
                "description": DESCRIPTION,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": base}],
            "tags": [{"name": name} for name in ("A2A", "A2A 0.3", "Sandbox", "Host", "Admin", "OpenAI", "MCP")],
            "paths": paths,
            "components": {
                "schemas": shared,
                "parameters": PARAMETERS,
                "responses": responses(),
                "securitySchemes": security_schemes(asked),
            },
        }
    )


def _operation(route: routes.Route, shared: dict[str, Schema], secured: list[dict[str, list[str]]]) -> Schema:
    name = OPERATIONS[route.handler]
    kind, result = jsonrpc.METHODS[name][0], RESULTS[name]
    path = names(route.template)
    wanted = without(shared[kind.__name__], path)
    has_body = route.method == "POST"
    parameters = [parameter("Agent"), *map(in_path, path), *headers(name)]
    if not has_body:
        parameters += [in_query(field, schema) for field, schema in wanted["properties"].items() if field != "tenant"]
    statuses = ["400", "401", "403", "404", "429", "503"]
    if has_body:
        statuses += ["413", "422"] if kind is types.SendMessageRequest else ["413"]
    if result is types.StreamResponse:
        body: Schema = EVENTS
    else:
        body = content(BINDING, EMPTY if result is None else reference(result))
    made: Schema = {
        "operationId": f"{name}Post" if has_body and result is types.StreamResponse and path else name,
        "tags": ["A2A"],
        "summary": route.summary,
        "security": secured,
        "parameters": parameters,
        "responses": {"200": answer("200", body), **errors("Rest", statuses)},
    }
    if has_body:
        required = "required" in wanted
        body_name = kind.__name__ if required else f"{name}Body"
        shared.setdefault(body_name, wanted)
        made["requestBody"] = {"required": required, "content": content(BINDING, named(body_name))}
    return made


def _json_rpc(secured: list[dict[str, list[str]]]) -> Schema:
    calls = {method: named(call_of(method)) for method in jsonrpc.METHODS}
    mapping = {method: call["$ref"] for method, call in calls.items()}
    call = {"oneOf": list(calls.values()), "discriminator": {"propertyName": "method", "mapping": mapping}}
    result = {"oneOf": [named("RpcResult"), reference(openapi_schemas.RpcError)]}
    return {
        "operationId": "CallJSONRPC",
        "tags": ["A2A"],
        "summary": routes.RPC.summary,
        "security": secured,
        "parameters": [parameter("Agent"), *headers("SubscribeToTask")],
        "requestBody": {"required": True, "content": content(BINDING, call)},
        "responses": {
            "200": answer("200", {**content([JSON], result), **EVENTS}),
            **errors("Rpc", ["401", "403", "404", "413", "429", "503"]),
        },
    }


def _host_route(template: str, summary: str, asked: Asked) -> Schema:
    known = HOST_ANSWERS[template]
    has_agent = "{agent}" in template
    statuses = ["400", "403", "429", "503"]
    statuses += ["401"] if known.asks or has_agent else []
    statuses += ["404"] if has_agent else []
    secured: list[dict[str, list[str]]] = []
    if known.asks == METRICS and asked.agents and not asked.open_metrics:
        secured = security(asked.always, (METRICS, ADMIN))
    elif known.asks == "anyone":
        secured = security(asked.agents)
    body = {media: {"schema": {} if kind is None else reference(kind)} for media, kind in known.content.items()}
    more = {status: answer(status, body if status == "503" else {}) for status in known.more}
    return {
        "operationId": known.name,
        "tags": ["Host"],
        "summary": summary,
        "security": secured,
        "parameters": [parameter("Agent")] if has_agent else [],
        "responses": {"200": answer("200", body), **errors("Rest", statuses), **more},
    }


def _admin_route(route: admin.AdminRoute, secured: list[dict[str, list[str]]]) -> Schema:
    status, kind = ADMIN_RESULTS[route.name]
    statuses = ["400", "401", "403", "404", "429", "503"]
    made: Schema = {
        "operationId": "Admin" + route.name.title().replace("_", ""),
        "tags": ["Admin"],
        "summary": route.summary,
        "security": secured,
        "parameters": [
            *map(in_path, names(route.template)),
            *[in_query(name, schema) for name, schema in ADMIN_QUERIES.get(route.name, {}).items()],
        ],
    }
    if route.body is not None:
        statuses.append("413")
        required = any(field.required for field in msgspec.structs.fields(route.body))
        made["requestBody"] = {"required": required, "content": content([JSON], reference(route.body))}
    body = {} if kind is None else content([JSON], reference(kind))
    if route.name == "export_evidence":
        body = {BUNDLE: {}}
    made["responses"] = {status: answer(status, body), **errors("Problem", statuses)}
    return made
