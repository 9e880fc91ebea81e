"""Callers of a host, each with a credential of its own, and the forms in which they are refused."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.doors.wire import VERSION, Door, Rest, Rpc
from tests.processes import Server
from tests.waiting import PATIENCE_S

AGENTS = Path(__file__).parent / "agents.py"
ADMIN = "/api/v2/admin"
CARD = "/.well-known/agent-card.json"
JWKS = "/.well-known/jwks.json"
MULTI_TENANT = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"
IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"

ADMIN_SECRET = "an-admin-token-of-the-tests"
OPERATOR = {"ROOST_ADMIN_TOKEN": ADMIN_SECRET}

FORMS: dict[str, tuple[int, str, int, int, str]] = {
    # HTTP status, gRPC status, JSON-RPC code, the HTTP status of its answer, the admin surface's code.
    "UNAUTHENTICATED": (401, "UNAUTHENTICATED", -32025, 401, "auth.required"),
    "FORBIDDEN": (403, "PERMISSION_DENIED", -32023, 403, "auth.forbidden"),
    "TASK_NOT_FOUND": (404, "NOT_FOUND", -32001, 200, "task.not_found"),
    "TASK_NOT_CANCELABLE": (400, "FAILED_PRECONDITION", -32002, 200, "task.not_cancelable"),
    "AGENT_NOT_FOUND": (404, "NOT_FOUND", -32020, 404, "agent_not_found"),
    "ROUTE_NOT_FOUND": (404, "NOT_FOUND", -32021, 404, "route.not_found"),
    "METHOD_NOT_ALLOWED": (405, "UNIMPLEMENTED", -32022, 405, "route.method_not_allowed"),
    "METHOD_NOT_FOUND": (404, "NOT_FOUND", -32601, 200, ""),
    "INVALID_PARAMS": (400, "INVALID_ARGUMENT", -32602, 200, "validation.failed"),
    "UNSUPPORTED_OPERATION": (400, "FAILED_PRECONDITION", -32004, 200, ""),
    "EXTENSION_SUPPORT_REQUIRED": (400, "FAILED_PRECONDITION", -32008, 200, ""),
    "TOO_MANY_REQUESTS": (429, "RESOURCE_EXHAUSTED", -32029, 429, "quota.exceeded"),
    "UNAVAILABLE": (503, "UNAVAILABLE", -32030, 503, "runtime.unavailable"),
}

_names = itertools.count(1)


class Refusal(NamedTuple):
    """An error, after its form was checked."""

    form: str
    """rest, rpc or problem."""
    reason: str
    message: str
    metadata: dict[str, str]
    fields: list[str]


def refusal(response: httpx.Response) -> Refusal:
    """The error of any surface, in the form that is its own."""
    assert response.status_code != 200 or b'"error"' in response.content, "it was answered"
    kind = response.headers["content-type"]
    body = response.json()
    if kind == "application/problem+json":
        found = _problem(body)
        http, _, _, _, code = FORMS[found.reason]
        assert (response.status_code, body["status"], body["code"]) == (http, http, code), body
    elif "jsonrpc" in body:
        assert kind == "application/json"
        assert body.keys() == {"jsonrpc", "id", "error"}, body
        error = body["error"]
        assert error.keys() == {"code", "message", "data"}
        found = _detailed("rpc", error["message"], error["data"])
        _, _, rpc_code, status, _ = FORMS[found.reason]
        assert (response.status_code, error["code"]) == (status, rpc_code), body
    else:
        assert kind == "application/a2a+json"
        assert body.keys() == {"error"}, body
        error = body["error"]
        assert error.keys() == {"code", "status", "message", "details"}
        found = _detailed("rest", error["message"], error["details"])
        http, grpc, _, _, _ = FORMS[found.reason]
        assert (response.status_code, error["code"], error["status"]) == (http, http, grpc), body
    if response.status_code == 401:
        check_challenges(response)
    if response.status_code in (429, 503):
        assert int(response.headers["retry-after"]) > 0
    return found


def check_challenges(response: httpx.Response) -> None:
    challenges = response.headers.get_list("www-authenticate")
    assert challenges
    assert all('realm="roost"' in challenge for challenge in challenges)


def _problem(body: dict[str, Any]) -> Refusal:
    always = {"type", "title", "status", "code", "detail"}
    assert always <= body.keys() <= {*always, "errors"}, body
    (reason,) = [name for name, form in FORMS.items() if form[4] == body["code"]]
    fields = [error["field"] for error in body.get("errors", [])]
    return Refusal("problem", reason, body["detail"], {}, fields)


def _detailed(form: str, message: str, details: list[dict[str, Any]]) -> Refusal:
    assert message
    (info,) = [detail for detail in details if detail["@type"].endswith(".ErrorInfo")]
    assert info["domain"] == ("roost" if FORMS[info["reason"]][2] in range(-32099, -32019) else "a2a-protocol.org")
    violations = [detail["fieldViolations"] for detail in details if detail["@type"].endswith(".BadRequest")]
    fields = [violation["field"] for found in violations for violation in found]
    return Refusal(form, info["reason"], message, info.get("metadata", {}), fields)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def api_key(secret: str) -> dict[str, str]:
    return {"X-API-Key": secret}


class Person:
    """One caller of a host. `rest` and `rpc` are the two bindings, with its credential."""

    def __init__(self, base: str, headers: Mapping[str, str], **client: Any) -> None:
        self.base = base
        self.http = httpx.Client(headers=headers, timeout=PATIENCE_S, **{"verify": False, **client})
        self.rest = Rest(self.http, base)
        self.rpc = Rpc(self.http, base)
        self.doors: tuple[Door, Door] = (self.rest, self.rpc)

    def ask(self, method: str, path: str, json: object = None, **headers: str) -> httpx.Response:
        """Any request; an underscore in a header's name is a dash."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content: dict[str, Any] = {} if json is None else {"json": json}
        return self.http.request(method, self.base + path, headers={**VERSION, **named}, **content)

    def status(self, agent: str = "desk", **headers: str) -> int:
        """The status of the response to a plain read."""
        return self.ask("GET", f"/agents/{agent}/tasks", **headers).status_code

    def admin(self, method: str, path: str, json: object = None) -> Any:
        """Call an admin route, which must not refuse, and return its response."""
        answer = self.ask(method, f"{ADMIN}/{path}", json)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def make(self, *scopes: str, name: str = "", **more: object) -> dict[str, Any]:
        """A new token, by the admin routes, with its secret."""
        body = {"name": name or f"someone-{next(_names)}", "scopes": scopes or ["agent:*"], **more}
        made: dict[str, Any] = self.admin("POST", "tokens", body)
        return made


class People(ExitStack):
    """All who are made here are gone at the end."""

    def __init__(self, server: Server | str) -> None:
        super().__init__()
        self.base = server if isinstance(server, str) else server.url
        self.operator = self.with_headers(bearer(ADMIN_SECRET))

    def with_headers(self, headers: Mapping[str, str], **client: Any) -> Person:
        person = Person(self.base, headers, **client)
        self.enter_context(person.http)
        return person

    def new(self, *scopes: str, **wish: object) -> Person:
        """Somebody with a token of their own, which the operator has made."""
        return self.with_headers(bearer(self.operator.make(*scopes, **wish)["token"]))  # type: ignore[arg-type]
