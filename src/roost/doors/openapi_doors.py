"""Describes the routes of each door for /openapi.json. Doors pass these functions in their routes."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from roost.doors import openapi_schemas
from roost.doors.door import KNOWN, PUBLIC, Describe, Route
from roost.doors.openapi_components import (
    BINDING,
    EMPTY,
    JSON,
    Describer,
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
    without,
)
from roost.protocol import types
from roost.protocol.operations import OPERATIONS, Operation

STATUSES = ["400", "401", "403", "404", "429", "503"]
EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "Each `data` is a StreamResponse, in JSON-RPC the result of a response; each `id` can be the"
            " Last-Event-ID of SubscribeToTask",
        }
    }
}


# A2A 1.0


def rest_operation(operation: Operation) -> Describe:
    def describe(route: Route, describer: Describer) -> Schema:
        path = [name for name in names(route.path) if name != "agent"]
        wanted = without(describer.schema_of(operation.request), path)
        has_body = route.method == "POST"
        parameters = [*describer.path_parameters(route.path), *headers(operation)]
        if not has_body:
            fields = wanted["properties"].items()
            parameters += [in_query(field, schema) for field, schema in fields if field != "tenant"]
        statuses = [*STATUSES, *(["413"] if has_body else [])]
        if operation.request is types.SendMessageRequest:
            statuses.append("422")
        if operation.streams:
            body: Schema = EVENTS
        else:
            result = EMPTY if operation.response is None else describer.reference(operation.response)
            body = content(BINDING, result)
        made: Schema = {
            "operationId": f"{operation.name}Post" if has_body and operation.streams and path else operation.name,
            "tags": ["A2A"],
            "summary": route.summary,
            "security": describer.security(route.access),
            "parameters": parameters,
            "responses": {"200": answer("200", body), **errors("Rest", statuses)},
        }
        if has_body:
            required = "required" in wanted
            reference = (
                describer.reference(operation.request) if required else describer.body(f"{operation.name}Body", wanted)
            )
            made["requestBody"] = {"required": required, "content": content(BINDING, reference)}
        return made

    return describe


def json_rpc(route: Route, describer: Describer) -> Schema:
    calls = {operation.name: named(call_of(operation.name)) for operation in OPERATIONS}
    mapping = {method: call["$ref"] for method, call in calls.items()}
    call = {"oneOf": list(calls.values()), "discriminator": {"propertyName": "method", "mapping": mapping}}
    result = {"oneOf": [named("RpcResult"), describer.reference(openapi_schemas.RpcError)]}
    subscribe = next(operation for operation in OPERATIONS if operation.resumes)
    return {
        "operationId": "CallJSONRPC",
        "tags": ["A2A"],
        "summary": route.summary,
        "security": describer.security(route.access),
        "parameters": [*describer.path_parameters(route.path), *headers(subscribe)],
        "requestBody": {"required": True, "content": content(BINDING, call)},
        "responses": {
            "200": answer("200", {**content([JSON], result), **EVENTS}),
            **errors("RpcOrRest", ["401", "403", "404", "413", "429", "503"]),
        },
    }


# agentic-sandbox's dialect and A2A 0.3


def dialect_operation(operation: Operation, query: dict[str, str], states: list[str]) -> Describe:
    """The same operation with the dialect's errors and names, and with a version that may be absent."""

    def describe(route: Route, describer: Describer) -> Schema:
        made = rest_operation(operation)(route, describer)
        if operation.name == "ListTasks":
            dialect_names = {ours: name for name, ours in query.items()}
            for one in made["parameters"]:
                if "name" in one:
                    one["name"] = dialect_names.get(one["name"], one["name"])
                if one.get("name") == "state":
                    one["schema"] = {"type": "string", "enum": states}
        statuses = [key for key in made["responses"] if key != "200"]
        return {
            **made,
            "parameters": [
                parameter("DialectVersion") if one == parameter("Version") else one for one in made["parameters"]
            ],
            "operationId": f"Sandbox{made['operationId']}",
            "tags": ["Sandbox"],
            "responses": made["responses"] | errors("Sandbox", statuses),
        }

    return describe


def old_operation(operation: Operation) -> Describe:
    def describe(route: Route, describer: Describer) -> Schema:
        method = route.method.lower()
        below = route.path.removeprefix("/agents/{agent}")
        more = ("Extensions", "Tenant", *(["LastEvent"] if operation.resumes else []))
        made: Schema = {
            "operationId": "Old" + re.sub(r"\W+", " ", f"{method} {below}").title().replace(" ", ""),
            "tags": ["A2A 0.3"],
            "summary": route.summary,
            "security": describer.security(route.access),
            "parameters": [*describer.path_parameters(route.path), *map(parameter, more)],
        }
        sends = operation.request is types.SendMessageRequest
        body: Schema = {"type": "object", "description": "The JSON of a protobuf message of A2A 0.3"}
        if sends:
            body |= {"properties": {"message": {"type": "object"}}, "required": ["message"]}
        if method == "post":
            made["requestBody"] = {"required": sends, "content": content([JSON], body)}
        events = {"text/event-stream": {"schema": {"type": "string", "description": "Each `data` is such a message"}}}
        statuses = [*STATUSES, *(["413", "422"] if method == "post" else [])]
        result = events if operation.streams else content([JSON], {})
        made["responses"] = {"200": answer("200", result), **errors("Old", statuses)}
        return made

    return describe


# The host's own pages


def page(name: str, media_types: dict[str, type[Any] | None], *more: str) -> Describe:
    """A page. `media_types` maps each media type to the type of its JSON, or to None; `more` are further statuses."""

    def describe(route: Route, describer: Describer) -> Schema:
        has_agent = "{agent}" in route.path
        is_scoped = route.access not in (PUBLIC, KNOWN)
        secured = describer.security(route.access)
        if is_scoped and not describer.demands.agents:  # an open host opens its metrics too
            secured = []
        statuses = ["400", "403", "429", "503"]
        statuses += ["401"] if route.access != PUBLIC or has_agent else []
        statuses += ["404"] if has_agent else []
        body = {
            media_type: {"schema": {} if kind is None else describer.reference(kind)}
            for media_type, kind in media_types.items()
        }
        others = {status: answer(status, body if status == "503" else {}) for status in more}
        return {
            "operationId": name,
            "tags": ["Host"],
            "summary": route.summary,
            "security": secured,
            "parameters": describer.path_parameters(route.path),
            "responses": {"200": answer("200", body), **errors("Rest", statuses), **others},
        }

    return describe


# The admin surface


def admin_route(
    name: str, status: str, result: type[Any] | None, body: type[Any] | None, query: dict[str, Schema], media_type: str
) -> Describe:
    def describe(route: Route, describer: Describer) -> Schema:
        statuses = list(STATUSES)
        made: Schema = {
            "operationId": "Admin" + name.title().replace("_", ""),
            "tags": ["Admin"],
            "summary": route.summary,
            "security": describer.security(route.access),
            "parameters": [
                *map(in_path, names(route.path)),
                *[in_query(field, schema) for field, schema in query.items()],
            ],
        }
        if body is not None:
            statuses.append("413")
            required = any(field.required for field in msgspec.structs.fields(body))
            made["requestBody"] = {"required": required, "content": content([JSON], describer.reference(body))}
        found = {} if result is None else content([JSON], describer.reference(result))
        if media_type != JSON:
            found = {media_type: {}}
        made["responses"] = {status: answer(status, found), **errors("Problem", statuses)}
        return made

    return describe


# OpenAI and MCP


def openai_route(name: str, result: type[Any], body: type[Any] | None, query: dict[str, Schema]) -> Describe:
    def describe(route: Route, describer: Describer) -> Schema:
        tenant = [] if "models" in route.path else [parameter("Extensions"), parameter("Tenant")]
        statuses = list(STATUSES)
        streams = body is not None or bool(query)
        events = {
            "text/event-stream": {"schema": {"type": "string", "description": "OpenAI's chunks, or its typed events"}}
        }
        found = content([JSON], describer.reference(result)) | (events if streams else {})
        made: Schema = {
            "operationId": "OpenAI" + name.title().replace("_", ""),
            "tags": ["OpenAI"],
            "summary": route.summary,
            "security": describer.security(route.access),
            "parameters": [
                *describer.path_parameters(route.path),
                *tenant,
                *[in_query(field, schema) for field, schema in query.items()],
            ],
        }
        if body is not None:
            statuses += ["409", "413", "422", "502"]
            reference = describer.reference(body)
            if "{agent}" not in route.path:  # elsewhere the path names the model
                schema = describer.schema_of(body)
                required = [*schema.get("required", []), "model"]
                reference = describer.body(f"{body.__name__}WithModel", {**schema, "required": required})
            made["requestBody"] = {"required": True, "content": content([JSON], reference)}
        made["responses"] = {"200": answer("200", found), **errors("OpenAI", statuses)}
        return made

    return describe


MCP_MESSAGE: Schema = {
    "type": "object",
    "description": "A message of the Model Context Protocol",
    "properties": {
        "jsonrpc": {"type": "string", "enum": ["2.0"]},
        "id": {"type": ["string", "integer", "null"]},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
    "required": ["jsonrpc"],
}


def mcp(route: Route, describer: Describer) -> Schema:
    statuses = list(STATUSES)
    made: Schema = {
        "operationId": f"MCP{route.method.title()}",
        "tags": ["MCP"],
        "summary": route.summary,
        "security": describer.security(route.access),
        "parameters": [parameter("MCPSession"), parameter("MCPVersion")],
    }
    body: Schema = {}
    more = {"405": answer("405", {})}  # versions without sessions have none to end
    if route.method == "POST":
        statuses.append("413")
        events = {"text/event-stream": {"schema": {"type": "string", "description": "Each `data` is such a message"}}}
        body = content([JSON], MCP_MESSAGE) | events
        more = {status: answer(status, {}) for status in ("202", "406")}
        made["requestBody"] = {"required": True, "content": content([JSON], MCP_MESSAGE)}
    refused = {status: answer(status, content([JSON], MCP_MESSAGE)) for status in statuses}
    made["responses"] = {"200": answer("200", body), **refused, **more}
    return made
