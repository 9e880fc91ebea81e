"""Every route, once: the dispatcher, the docs and the tests all read this table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roost.doors import jsonrpc, rest
from roost.doors.rest import Handler
from roost.doors.templates import values_of

AGENT = "/agents/{agent}"


class Route(NamedTuple):
    method: str
    template: str
    """Below the agent's base path; `{name}` is one segment or the part of one before a `:verb`."""
    handler: Handler
    summary: str


OPERATIONS: tuple[Route, ...] = (
    Route("POST", "/message:send", rest.send_message, "Send a message and wait for the task"),
    Route("POST", "/message:stream", rest.stream_message, "Send a message and stream the task"),
    Route("GET", "/tasks", rest.list_tasks, "List the caller's tasks"),
    Route("GET", "/tasks/{id}", rest.get_task, "Read a task"),
    Route("POST", "/tasks/{id}:cancel", rest.cancel_task, "Cancel a task"),
    Route("GET", "/tasks/{id}:subscribe", rest.subscribe_to_task, "Follow a task"),
    Route("POST", "/tasks/{id}:subscribe", rest.subscribe_to_task, "Follow a task"),
    Route("POST", "/tasks/{taskId}/pushNotificationConfigs", rest.create_push_config, "Set a webhook of a task"),
    Route("GET", "/tasks/{taskId}/pushNotificationConfigs", rest.list_push_configs, "List the webhooks of a task"),
    Route("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}", rest.get_push_config, "Read a webhook of a task"),
    Route(
        "DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}", rest.delete_push_config, "Delete a webhook of a task"
    ),
    Route("GET", "/extendedAgentCard", rest.extended_card, "The card with what only this caller may know"),
)
"""Served below an agent's path, and below `{path}/{tenant}` too."""

RPC = Route("POST", "/", jsonrpc.serve, "JSON-RPC, every operation")

HOST_ROUTES: tuple[tuple[str, str, str], ...] = (
    ("GET", "/", "The agents with commands to copy, as a page or as JSON"),
    ("GET", "/agents/", "The directory of the fleet"),
    ("GET", "/openapi.json", "All that is here, as an OpenAPI 3.1 document"),
    ("GET", "/.well-known/ai-catalog.json", "The agents that the caller may use, as an AI Catalog"),
    ("GET", "/.well-known/agent-card.json", "The fleet's card, or that of the agent bound to the root"),
    ("GET", "/agents/{agent}/.well-known/agent-card.json", "An agent's card"),
    ("GET", "/.well-known/jwks.json", "The keys that sign the cards of all agents"),
    ("GET", "/agents/{agent}/.well-known/jwks.json", "The keys that sign an agent's card"),
    ("GET", "/.well-known/evidence-jwks.json", "The keys that sign evidence, or did and were not retired by hand"),
    ("GET", "/healthz", "The process lives"),
    ("GET", "/health", "The same"),
    ("GET", "/readyz", "The store writes; says what does not"),
    ("GET", "/ready", "The same"),
    ("GET", "/metrics", "Prometheus text"),
)

EXACT = {(route.method, route.template): route for route in OPERATIONS if "{" not in route.template}


class Match(NamedTuple):
    route: Route | None
    path: dict[str, str]
    allowed: tuple[str, ...]
    """Where no route fits the method: those that would."""


NOTHING = Match(None, {}, ())


def match(method: str, path: str, agent: str) -> Match:
    """Find the operation for the path below an agent.

    A first segment that is the agent's id is its tenant, even where the id reads like a path (`tasks`).
    """
    tenant, slash, below = path[1:].partition("/")
    found = _match(method, path) if tenant != agent else NOTHING
    if found is NOTHING and slash and tenant:
        inner = _match(method, slash + below)
        if inner is not NOTHING:
            return Match(inner.route, {**inner.path, "tenant": tenant}, inner.allowed)
    return _match(method, path) if tenant == agent else found


def _match(method: str, path: str) -> Match:
    exact = EXACT.get((method, path))
    return find(OPERATIONS, method, path) if exact is None else Match(exact, {}, ())


def find(table: Sequence[Route], method: str, path: str) -> Match:
    allowed: list[str] = []
    segments = path.split("/")
    for route in table:
        values = values_of(route.template.split("/"), segments)
        if values is None:
            continue
        if route.method == method:
            return Match(route, values, ())
        allowed.append(route.method)
    return Match(None, {}, tuple(dict.fromkeys(allowed))) if allowed else NOTHING
