"""The doors of others in /openapi.json: OpenAI's, MCP's, A2A 0.3's and the dialect of agentic-sandbox."""

from __future__ import annotations

import re
from typing import Any

from roost.doors import routes, sandbox
from roost.doors.openai import door as openai
from roost.doors.openai import shapes as openai_shapes
from roost.doors.openapi_components import (
    JSON,
    Schema,
    answer,
    content,
    errors,
    in_path,
    in_query,
    names,
    parameter,
    reference,
)

OPENAI_RESULTS: dict[str, type[Any]] = {
    "create_chat": openai_shapes.ChatCompletion,
    "create_agent_chat": openai_shapes.ChatCompletion,
    "create_response": openai_shapes.ResponseObject,
    "get_response": openai_shapes.ResponseObject,
    "cancel_response": openai_shapes.ResponseObject,
    "list_models": openai_shapes.ModelList,
    "get_model": openai_shapes.Model,
}
OPENAI_QUERIES: dict[str, dict[str, Schema]] = {
    "get_response": {"stream": {"type": "boolean"}, "starting_after": {"type": "integer", "minimum": 0}}
}
OPENAI_EVENTS = {
    "text/event-stream": {"schema": {"type": "string", "description": "OpenAI's chunks, or its typed events"}}
}
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
MCP_EVENTS = {"text/event-stream": {"schema": {"type": "string", "description": "Each `data` is such a message"}}}

OLD_BODY: Schema = {"type": "object", "description": "The JSON of a protobuf message of A2A 0.3"}
OLD_EVENTS = {"text/event-stream": {"schema": {"type": "string", "description": "Each `data` is such a message"}}}


def sandbox_operation(operation: Schema) -> Schema:
    """The same operation as the dialect has it: its errors, and its words in the query of ListTasks."""
    parameters = operation["parameters"]
    if operation["operationId"] == "ListTasks":
        words = {ours: name for name, ours in sandbox.QUERY.items()}
        parameters = [
            {**one, "name": words.get(one["name"], one["name"])} if "name" in one else one for one in parameters
        ]
        state = next(one for one in parameters if one.get("name") == "state")
        state["schema"] = {"type": "string", "enum": list(sandbox.STATES)}
    return {
        **operation,
        "operationId": f"Sandbox{operation['operationId']}",
        "tags": ["Sandbox"],
        "parameters": parameters,
        "responses": operation["responses"]
        | errors("Sandbox", [key for key in operation["responses"] if key != "200"]),
    }


def add_old(at: Schema, route: routes.Route, secured: list[dict[str, list[str]]]) -> None:
    """An operation of A2A 0.3; where another has the same path and method, the version tells them apart."""
    method = route.method.lower()
    if method in at:
        at[method]["responses"]["200"]["content"][JSON] = {}
        at[method]["description"] = f"Without `A2A-Version: 1.0`: {route.summary}; see docs/a2a-0.3.md"
        return
    streams = route.template.endswith((":stream", ":subscribe"))
    made: Schema = {
        "operationId": "Old" + re.sub(r"\W+", " ", f"{method} {route.template}").title().replace(" ", ""),
        "tags": ["A2A 0.3"],
        "summary": route.summary,
        "security": secured,
        "parameters": [
            parameter("Agent"),
            *map(in_path, names(route.template)),
            *[
                parameter(name)
                for name in ("Extensions", "Tenant", *(["LastEvent"] if "}:sub" in route.template else []))
            ],
        ],
    }
    if method == "post":
        made["requestBody"] = {"required": "message" in route.template, "content": content([JSON], OLD_BODY)}
    body = OLD_EVENTS if streams else content([JSON], {})
    statuses = ["400", "401", "403", "404", "429", "503", *(["413", "422"] if method == "post" else [])]
    made["responses"] = {"200": answer("200", body), **errors("Old", statuses)}
    at[method] = made


def openai_route(route: openai.OpenAIRoute, template: str, secured: list[dict[str, list[str]]]) -> Schema:
    path = [name for name in names(template) if name != "agent"]
    agent = [parameter("Agent")] if "{agent}" in template else []
    asked = OPENAI_QUERIES.get(route.name, {})
    tenant = [] if "models" in template else [parameter("Extensions"), parameter("Tenant")]
    parameters = [*agent, *map(in_path, path), *tenant, *[in_query(name, schema) for name, schema in asked.items()]]
    statuses = ["400", "401", "403", "404", "429", "503"]
    streams = route.body is not None or bool(asked)
    body = content([JSON], reference(OPENAI_RESULTS[route.name])) | (OPENAI_EVENTS if streams else {})
    made: Schema = {
        "operationId": "OpenAI" + route.name.title().replace("_", ""),
        "tags": ["OpenAI"],
        "summary": route.summary,
        "security": secured,
        "parameters": parameters,
    }
    if route.body is not None:
        statuses += ["409", "413", "422", "502"]
        made["requestBody"] = {"required": True, "content": content([JSON], reference(route.body))}
    made["responses"] = {"200": answer("200", body), **errors("OpenAI", statuses)}
    return made


def mcp_route(method: str, summary: str, secured: list[dict[str, list[str]]]) -> Schema:
    statuses = ["400", "401", "403", "404", "429", "503"]
    made: Schema = {
        "operationId": f"MCP{method.title()}",
        "tags": ["MCP"],
        "summary": summary,
        "security": secured,
        "parameters": [parameter("MCPSession"), parameter("MCPVersion")],
    }
    body: Schema = {}
    more = {"405": answer("405", {})}  # versions that have no sessions have none to end
    if method == "POST":
        statuses.append("413")
        body = content([JSON], MCP_MESSAGE) | MCP_EVENTS
        more = {status: answer(status, {}) for status in ("202", "406")}
        made["requestBody"] = {"required": True, "content": content([JSON], MCP_MESSAGE)}
    refused = {status: answer(status, content([JSON], MCP_MESSAGE)) for status in statuses}
    made["responses"] = {"200": answer("200", body), **refused, **more}
    return made
