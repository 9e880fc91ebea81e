"""Access to every route by every kind of caller. The test fails for a route that is not in these tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from roost.doors.cards import CARD_PATH, JWKS_PATH
from roost.doors.door import AGENT
from roost.protocol.operations import BY_NAME as METHODS
from tests.a2a_03.wire import proto_sending
from tests.access.people import ADMIN, ADMIN_SECRET, AGENTS, OPERATOR, People, Person, api_key, bearer, refusal
from tests.doors.wire import VERSION, message
from tests.processes import running
from tests.routes import routes_of
from tests.waiting import eventually

HOOK = "http://127.0.0.1:9/hook"


class World:
    """The host, the owner of a task, and those who have no business with it."""

    def __init__(self, people: People) -> None:
        self.people = people
        self.owner = people.new("agent:desk", name="owner")
        self.operator = people.operator
        self.callers = {
            **{name: people.with_headers(headers) for name, headers in self._headers().items()},
            "api key": people.with_headers(api_key(self.owner.http.headers["authorization"].partition(" ")[2])),
            "owner": self.owner,
        }
        self.paused = self.task()

    def _headers(self) -> dict[str, dict[str, Any]]:
        make, scoped = self.operator.make, self._scoped
        expired, revoked = make(expiresIn="1s"), make()
        self.operator.admin("DELETE", f"tokens/{revoked['id']}")
        late = self.people.with_headers(bearer(expired["token"]))
        eventually(lambda: late.status() == 401)
        return {
            "anonymous": {},
            "wrong token": bearer("roost_" + "x" * 43),
            "wrong key": api_key("roost_" + "x" * 43),
            "basic": {"Authorization": "Basic b3duZXI6cGFzc3dvcmQ="},
            "no secret": {"Authorization": "Bearer"},
            "two words": {"Authorization": "Bearer one two"},
            "not text": {"Authorization": b"Bearer \xff\xfe\x80"},
            "expired": bearer(expired["token"]),
            "revoked": bearer(revoked["token"]),
            "revoked key": api_key(revoked["token"]),
            "stranger": bearer(make(tenants=["acme"])["token"]),
            "colleague": bearer(make()["token"]),
            "namesake": bearer(make(subject="owner", tenants=["acme"])["token"]),
            "elsewhere": scoped("agent:other"),
            "admin": scoped("admin"),
            "operator": scoped("operate"),
            "auditor": scoped("audit"),
            "meter": scoped("metrics"),
            "terminal": scoped("pty:observe", "pty:control"),
        }

    def _scoped(self, *scopes: str) -> dict[str, str]:
        return bearer(self.operator.make(*scopes)["token"])

    def task(self) -> str:
        """A task of the owner's that waits for an answer, with a webhook."""
        found: str = self.owner.rest.task(agent="desk")["id"]
        self.owner.rest.ok("CreateTaskPushNotificationConfig", {"taskId": found, "id": "hook", "url": HOOK}, "desk")
        return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    args = ("--drain-s", "0", "--auth-failures", "100000", "--push-allow-hosts", "127.0.0.1", "--push-attempts", "1")
    with running(AGENTS, args=(*args, "--root", "desk"), env=OPERATOR) as server, People(server) as people:
        world = World(people)
        before = world.owner.rest.get(world.paused, "desk")
        yield world
        assert world.owner.rest.get(world.paused, "desk") == before, "somebody else has touched the task"
        configs = world.owner.rest.ok("ListTaskPushNotificationConfigs", {"taskId": world.paused}, "desk")["configs"]
        assert [config["id"] for config in configs] == ["hook"]


# Who the callers are, in terms of what opens to them

UNKNOWN = {
    "anonymous": "",
    "wrong token": "unknown",
    "wrong key": "unknown",
    "basic": "malformed",
    "no secret": "malformed",
    "two words": "unknown",
    "not text": "unknown",
    "expired": "expired",
    "revoked": "revoked",
    "revoked key": "revoked",
}
"""The reason why the credential of each of these callers is refused; empty if there is none."""
OWNERS = {"owner", "api key"}
OTHERS = {"stranger", "colleague", "namesake"}
"""They may call the agent, and the task is not theirs."""
SCOPED = {"elsewhere", "admin", "operator", "auditor", "meter", "terminal"}
KNOWN = OWNERS | OTHERS | SCOPED
CALLERS = [*UNKNOWN, *sorted(KNOWN)]

OPENED = {
    "public": {*CALLERS},
    "known": KNOWN,
    "agent": OWNERS | OTHERS,
    "metrics": {"meter", "admin"},
    "admin": {"admin"},
    "audit": {"auditor", "admin"},
    "evidence": {"auditor"},
    "operate": {"operator"},
}
"""The callers who are admitted, by kind of route. Everyone else with a valid credential gets 403."""


def expected(kind: str, caller: str, *, of_a_task: bool) -> str:
    """The reason of the refusal; empty where there is none."""
    if caller in UNKNOWN and kind != "public":
        return "UNAUTHENTICATED"
    if caller not in OPENED[kind]:
        return "FORBIDDEN"
    return "TASK_NOT_FOUND" if of_a_task and kind == "agent" and caller in OTHERS else ""


def test_every_caller_has_a_place(world: World) -> None:
    assert world.callers.keys() == {*CALLERS}
    assert len(CALLERS) == len({*CALLERS})


# The routes


class Ask(NamedTuple):
    """A request as an admitted caller would send it; `of_a_task` if it is about an existing task."""

    body: Callable[[], dict[str, Any]] | None = None
    of_a_task: bool = True
    kind: str = "agent"
    status: int = 200


def sent() -> dict[str, Any]:
    return {"message": message()}


REST: dict[tuple[str, str], Ask] = {
    ("POST", "/message:send"): Ask(sent, of_a_task=False),
    ("POST", "/message:stream"): Ask(sent, of_a_task=False),
    ("GET", "/tasks"): Ask(of_a_task=False),
    ("GET", "/tasks/{id}"): Ask(),
    ("POST", "/tasks/{id}:cancel"): Ask(dict),
    ("GET", "/tasks/{id}:subscribe"): Ask(),
    ("POST", "/tasks/{id}:subscribe"): Ask(dict),
    ("POST", "/tasks/{taskId}/pushNotificationConfigs"): Ask(lambda: {"id": "mine", "url": HOOK}),
    ("GET", "/tasks/{taskId}/pushNotificationConfigs"): Ask(),
    ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"): Ask(),
    ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"): Ask(),
    ("GET", "/extendedAgentCard"): Ask(of_a_task=False),
}
SANDBOX: dict[tuple[str, str], Ask] = {
    ("POST", "/v1/messages:send"): Ask(sent, of_a_task=False),
    ("GET", "/v1/tasks"): Ask(of_a_task=False),
    ("GET", "/v1/tasks/{id}"): Ask(),
    ("POST", "/v1/tasks/{id}/cancel"): Ask(dict),
    ("GET", "/v1/tasks/{id}/subscribe"): Ask(),
    ("POST", "/v1/tasks/{id}/subscribe"): Ask(dict),
    ("POST", "/v1/tasks/{taskId}/pushNotificationConfigs"): Ask(lambda: {"id": "mine", "url": HOOK}),
    ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs"): Ask(),
    ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"): Ask(),
    ("DELETE", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"): Ask(),
    ("GET", "/v1/extendedAgentCard"): Ask(of_a_task=False),
}
SANDBOX_ERRORS = {
    "UNAUTHENTICATED": (401, "auth.required"),
    "FORBIDDEN": (403, "auth.forbidden"),
    "TASK_NOT_FOUND": (404, "task.not_found"),
}
RPC: dict[str, Ask] = {
    "SendMessage": Ask(sent, of_a_task=False),
    "SendStreamingMessage": Ask(sent, of_a_task=False),
    "GetTask": Ask(),
    "ListTasks": Ask(of_a_task=False),
    "CancelTask": Ask(),
    "SubscribeToTask": Ask(),
    "CreateTaskPushNotificationConfig": Ask(lambda: {"id": "mine", "url": HOOK}),
    "GetTaskPushNotificationConfig": Ask(lambda: {"id": "hook"}),
    "ListTaskPushNotificationConfigs": Ask(),
    "DeleteTaskPushNotificationConfig": Ask(lambda: {"id": "hook"}),
    "GetExtendedAgentCard": Ask(of_a_task=False),
}
HOST: dict[tuple[str, str], Ask] = {
    ("GET", "/"): Ask(kind="known", of_a_task=False),
    ("GET", "/agents/"): Ask(kind="known", of_a_task=False),
    ("GET", "/openapi.json"): Ask(kind="known", of_a_task=False),
    ("GET", "/.well-known/ai-catalog.json"): Ask(kind="known", of_a_task=False),
    ("GET", "/.well-known/agent-card.json"): Ask(kind="public", of_a_task=False),
    ("GET", "/agents/{agent}/.well-known/agent-card.json"): Ask(kind="public", of_a_task=False),
    ("GET", "/.well-known/jwks.json"): Ask(kind="public", of_a_task=False),
    ("GET", "/agents/{agent}/.well-known/jwks.json"): Ask(kind="public", of_a_task=False),
    ("GET", "/.well-known/evidence-jwks.json"): Ask(kind="public", of_a_task=False),
    ("GET", "/healthz"): Ask(kind="public", of_a_task=False),
    ("GET", "/health"): Ask(kind="public", of_a_task=False),
    ("GET", "/readyz"): Ask(kind="public", of_a_task=False),
    ("GET", "/ready"): Ask(kind="public", of_a_task=False),
    ("GET", "/metrics"): Ask(kind="metrics", of_a_task=False),
}
ADMIN_ASKS: dict[tuple[str, str], Ask] = {
    ("GET", "tokens"): Ask(kind="admin", of_a_task=False),
    ("POST", "tokens"): Ask(lambda: {"name": "new", "scopes": ["metrics"]}, False, "admin", 201),
    ("DELETE", "tokens/{id}"): Ask(kind="admin", of_a_task=False),
    ("GET", "keys"): Ask(kind="admin", of_a_task=False),
    ("POST", "keys/{agent}:rotate"): Ask(dict, False, "admin"),
    ("DELETE", "keys/{agent}/{kid}"): Ask(kind="admin", of_a_task=False, status=204),
    ("GET", "audit"): Ask(kind="audit", of_a_task=False),
    ("GET", "evidence"): Ask(kind="evidence", of_a_task=False, status=400),
    ("GET", "tasks/{id}"): Ask(kind="operate"),
    ("POST", "tasks/{id}:cancel"): Ask(dict, kind="operate"),
}
MCP_OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "1"},
}
MCP: dict[tuple[str, str], Ask] = {
    ("POST", "/mcp"): Ask(
        lambda: {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": MCP_OPENING},
        of_a_task=False,
        kind="known",
    ),
    ("DELETE", "/mcp"): Ask(of_a_task=False, kind="known", status=400),
}
OLD: dict[str, Ask] = {
    "POST /v1/message:send": Ask(proto_sending, of_a_task=False),
    "POST /v1/message:stream": Ask(proto_sending, of_a_task=False),
    "GET /v1/tasks": Ask(of_a_task=False),
    "GET /v1/tasks/{id}": Ask(),
    "POST /v1/tasks/{id}:cancel": Ask(dict),
    "GET /v1/tasks/{id}:subscribe": Ask(),
    "POST /v1/tasks/{id}:subscribe": Ask(dict),
    "POST /v1/tasks/{taskId}/pushNotificationConfigs": Ask(lambda: {"pushNotificationConfig": {"url": HOOK}}),
    "GET /v1/tasks/{taskId}/pushNotificationConfigs": Ask(),
    "GET /v1/tasks/{taskId}/pushNotificationConfigs/{id}": Ask(),
    "DELETE /v1/tasks/{taskId}/pushNotificationConfigs/{id}": Ask(),
    "GET /v1/card": Ask(of_a_task=False),
}
OLD_CARDS = [f"{place}/.well-known/{name}" for place in ("", "/agents/{agent}") for name in ("agent.json", "agent")]
OLD_ERRORS = {
    "UNAUTHENTICATED": (401, "UnauthenticatedError"),
    "FORBIDDEN": (403, "ForbiddenError"),
    "TASK_NOT_FOUND": (404, "TaskNotFoundError"),
}
CHAT: dict[str, Any] = {"model": "desk", "messages": [{"role": "user", "content": "hello"}]}
OPENAI: dict[str, Ask] = {
    "POST /openai/v1/chat/completions": Ask(lambda: CHAT, of_a_task=False),
    "POST /openai/v1/responses": Ask(lambda: {"model": "desk", "input": "hello"}, of_a_task=False),
    "GET /openai/v1/responses/{id}": Ask(),
    "DELETE /openai/v1/responses/{id}": Ask(),
    "GET /openai/v1/responses/{id}/input_items": Ask(),
    "POST /openai/v1/responses/{id}/cancel": Ask(dict),
    "GET /openai/v1/models": Ask(kind="known", of_a_task=False),
    "GET /openai/v1/models/{id}": Ask(of_a_task=False),
    "POST /agents/{agent}/v1/chat/completions": Ask(lambda: CHAT, of_a_task=False),
}
OPENAI_ERRORS = {
    "UNAUTHENTICATED": (401, "invalid_api_key"),
    "FORBIDDEN": (403, "forbidden"),
    "TASK_NOT_FOUND": (404, "response_not_found"),
}


def test_every_route_there_is_is_in_the_tables() -> None:
    """Every route is tested with the access that its door declares for it."""

    def declared(*doors: str, prefix: str = "") -> dict[tuple[str, str], str]:
        return {
            (route.method, route.path.removeprefix(prefix)): route.access for door in doors for route in routes_of(door)
        }

    def asked(table: dict[tuple[str, str], Ask]) -> dict[tuple[str, str], str]:
        return {key: ACCESS.get(ask.kind, ask.kind) for key, ask in table.items()}

    def split(table: dict[str, Ask]) -> dict[tuple[str, str], Ask]:
        return {(route.partition(" ")[0], route.partition(" ")[2]): ask for route, ask in table.items()}

    assert declared("RestDoor", prefix=AGENT) == asked(REST)
    assert declared("SandboxDoor", prefix=AGENT) == asked(SANDBOX)
    assert METHODS.keys() == RPC.keys()
    old_cards = {("GET", path): Ask(kind="public") for path in OLD_CARDS}
    assert declared("HostDoor", "CardDoor", "ObservabilityDoor") == asked(HOST | old_cards)
    assert declared("AdminDoor", prefix="/api/v2/admin/") == asked(ADMIN_ASKS)
    assert declared("MCPDoor") == asked(MCP)
    assert declared("OldRestDoor", prefix=AGENT) == asked(split(OLD))
    assert declared("OpenAIDoor") == asked(split(OPENAI))


ACCESS = {"audit": "audit admin", "evidence": "audit", "metrics": "metrics admin"}
"""The doors' names for the kinds of routes that have another name here."""


def judge(world: World, caller: str, ask: Ask, request: Callable[[Person, str], httpx.Request], form: str) -> None:
    """Ask as this caller; what comes must be what the tables say, in the form of the surface."""
    reason = expected(ask.kind, caller, of_a_task=ask.of_a_task)
    person = world.callers[caller]
    task = world.task() if ask.of_a_task and not reason else world.paused
    response = person.http.send(request(person, task), stream=True)
    try:
        if not reason:
            assert response.status_code == ask.status, response.read()
            if form == "rpc" and response.is_success and response.headers["content-type"] != "text/event-stream":
                assert "result" in json.loads(response.read())
            return
        response.read()
        found = refusal(response)
        assert (found.form, found.reason) == (form, reason), response.text
        if reason == "UNAUTHENTICATED":
            said = ", ".join(response.headers.get_list("www-authenticate"))
            assert found.metadata.get("cause", "") == (UNKNOWN[caller] if form != "problem" else "")
            assert ("invalid_token" in said) == bool(UNKNOWN[caller])
    finally:
        response.close()


def filled(template: str, task: str) -> str:
    return template.replace("{id}", "hook" if "{taskId}" in template else task).replace("{taskId}", task)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", [f"{method} {template}" for method, template in REST])
def test_rest(world: World, route: str, caller: str) -> None:
    method, _, template = route.partition(" ")
    ask = REST[method, template]

    def request(person: Person, task: str) -> httpx.Request:
        body: dict[str, Any] = {} if ask.body is None else {"json": ask.body()}
        url = f"{person.base}/agents/desk{filled(template, task)}"
        return person.http.build_request(method, url, headers=VERSION, **body)

    judge(world, caller, ask, request, "rest")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", [f"{method} {template}" for method, template in SANDBOX])
def test_sandbox(world: World, route: str, caller: str) -> None:
    method, _, template = route.partition(" ")
    ask = SANDBOX[method, template]
    reason = expected(ask.kind, caller, of_a_task=ask.of_a_task)
    task = world.task() if ask.of_a_task and not reason else world.paused
    person, body = world.callers[caller], {} if ask.body is None else {"json": ask.body()}
    url = f"{person.base}/agents/desk{filled(template, task)}"
    with person.http.stream(method, url, headers=VERSION, **body) as response:
        if not reason:
            assert response.status_code == 200, response.read()
            return
        found = json.loads(response.read())
    assert (response.status_code, found["code"]) == SANDBOX_ERRORS[reason]
    assert (found["instance_id"], found["error"]["details"][0]["reason"]) == ("desk", reason)
    assert ("www-authenticate" in response.headers) == (reason == "UNAUTHENTICATED")


@pytest.mark.parametrize("prefix", ["", "/desk", "/agents/desk/desk"])
@pytest.mark.parametrize("caller", ["anonymous", "wrong token", "owner", "colleague", "elsewhere", "admin"])
def test_rest_below_the_root_and_below_the_tenant_too(world: World, caller: str, prefix: str) -> None:
    ask = REST["GET", "/tasks/{id}"]
    judge(
        world,
        caller,
        ask,
        lambda person, task: person.http.build_request("GET", f"{person.base}{prefix}/tasks/{task}", headers=VERSION),
        "rest",
    )


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("operation", list(METHODS))
def test_jsonrpc(world: World, operation: str, caller: str) -> None:
    ask = RPC[operation]

    def request(person: Person, task: str) -> httpx.Request:
        params = {} if ask.body is None else ask.body()
        if ask.of_a_task:
            params["taskId" if "PushNotification" in operation else "id"] = task
        return person.rpc.request(operation, params, "desk")

    judge(world, caller, ask, request, "rpc")


@pytest.mark.parametrize("path", ["/", "/agents/desk/", "/agents/desk/desk"])
@pytest.mark.parametrize("caller", ["anonymous", "wrong token", "owner", "colleague", "elsewhere", "admin"])
def test_jsonrpc_at_its_other_paths(world: World, caller: str, path: str) -> None:
    def request(person: Person, task: str) -> httpx.Request:
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}}
        return person.http.build_request("POST", person.base + path, json=body, headers=VERSION)

    judge(world, caller, RPC["GetTask"], request, "rpc")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", [f"{method} {path}" for method, path in HOST])
def test_the_host_itself(world: World, route: str, caller: str) -> None:
    method, _, path = route.partition(" ")
    ask = HOST[method, path]
    url = path.replace("{agent}", "desk")
    judge(
        world,
        caller,
        ask,
        lambda person, _: person.http.build_request(method, person.base + url),
        "rest",
    )


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", [f"{method} {template}" for method, template in ADMIN_ASKS])
def test_admin(world: World, route: str, caller: str) -> None:
    method, _, template = route.partition(" ")
    ask = ADMIN_ASKS[method, template]
    allowed = not expected(ask.kind, caller, of_a_task=False)

    def request(person: Person, task: str) -> httpx.Request:
        path = template.replace("{agent}", "desk")
        if "tokens" in path:
            path = path.replace("{id}", world.operator.make("metrics")["id"] if allowed else "tok-000000000000")
        if "{kid}" in path:
            path = path.replace("{kid}", replaced(world) if allowed else "nothing")
        body: dict[str, Any] = {} if ask.body is None else {"json": ask.body()}
        url = f"{person.base}{ADMIN}/{path.replace('{id}', task)}"
        return person.http.build_request(method, url, **body)

    judge(world, caller, ask, request, "problem")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", [f"{method} {path}" for method, path in MCP])
def test_mcp(world: World, route: str, caller: str) -> None:
    """Those who are known come in, even if there is no agent for them; the right to each is asked for at its tool."""
    method, _, path = route.partition(" ")
    ask = MCP[method, path]

    def request(person: Person, task: str) -> httpx.Request:
        body: dict[str, Any] = {} if ask.body is None else {"json": ask.body()}
        headers = {"Accept": "application/json, text/event-stream"}
        return person.http.build_request(method, person.base + path, headers=headers, **body)

    judge(world, caller, ask, request, "rpc")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", list(OPENAI))
def test_openai(world: World, route: str, caller: str) -> None:
    ask, (method, _, template) = OPENAI[route], route.partition(" ")
    reason = expected(ask.kind, caller, of_a_task=ask.of_a_task)
    task = world.task() if ask.of_a_task and not reason else world.paused
    path = template.replace("{id}", f"resp_desk_{task}_1" if ask.of_a_task else "desk").replace("{agent}", "desk")
    person, body = world.callers[caller], {} if ask.body is None else {"json": ask.body()}

    def answered() -> httpx.Response | None:
        response = person.http.request(method, person.base + path, **body)
        return None if "response_not_deletable" in response.text else response

    response = eventually(answered, "the end of the webhook's delivery, until which the task is kept")
    if not reason:
        assert response.status_code == 200, response.text
        return
    found = response.json()["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    assert (response.status_code, found["code"]) == OPENAI_ERRORS[reason]
    assert ("www-authenticate" in response.headers) == (reason == "UNAUTHENTICATED")


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", list(OLD))
def test_a2a_03(world: World, route: str, caller: str) -> None:
    ask, (method, _, template) = OLD[route], route.partition(" ")
    reason = expected(ask.kind, caller, of_a_task=ask.of_a_task)
    task = world.task() if ask.of_a_task and not reason else world.paused
    person, body = world.callers[caller], {} if ask.body is None else {"json": ask.body()}
    url = f"{person.base}/agents/desk{filled(template, task)}"
    with person.http.stream(method, url, **body) as response:
        if not reason:
            assert response.status_code == 200, response.read()
            return
        found = json.loads(response.read())
    assert found.keys() == {"type", "code", "message", "data"}
    assert (response.status_code, found["type"]) == OLD_ERRORS[reason]
    assert ("www-authenticate" in response.headers) == (reason == "UNAUTHENTICATED")


@pytest.mark.parametrize("path", OLD_CARDS)
def test_the_card_of_a2a_03_is_for_everyone(world: World, path: str) -> None:
    for caller in CALLERS:
        answer = world.callers[caller].http.get(world.people.base + path.replace("{agent}", "desk"))
        assert (answer.status_code, answer.json()["protocolVersion"]) == (200, "0.3.0")


def replaced(world: World) -> str:
    """A key of the desk's that is not its current one any more."""
    world.operator.admin("POST", "keys/desk:rotate", {})
    keys = world.operator.admin("GET", "keys")["items"]
    found: str = next(key["kid"] for key in keys if key["agent"] == "desk" and key["until"] and not key["retired"])
    return found


# What is not there

NOWHERE = [
    ("GET", "/nowhere", "rest", "ROUTE_NOT_FOUND"),
    ("GET", "/agents/desk/nowhere", "rest", "ROUTE_NOT_FOUND"),
    ("PUT", "/agents/desk/tasks", "rest", "METHOD_NOT_ALLOWED"),
    ("GET", "/agents/desk", "rest", "METHOD_NOT_ALLOWED"),
    ("OPTIONS", "/agents/desk/tasks", "rest", "METHOD_NOT_ALLOWED"),
    ("GET", "/agents/nobody", "rest", "AGENT_NOT_FOUND"),
    ("GET", "/agents/nobody/tasks", "rest", "AGENT_NOT_FOUND"),
    ("GET", f"/agents/nobody{CARD_PATH}", "rest", "AGENT_NOT_FOUND"),
    ("GET", f"/agents/nobody{JWKS_PATH}", "rest", "AGENT_NOT_FOUND"),
    ("POST", "/agents/nobody", "rpc", "AGENT_NOT_FOUND"),
    ("POST", "/agents/nobody/message:send", "rest", "AGENT_NOT_FOUND"),
    ("GET", "/api/v2/admin", "rest", "ROUTE_NOT_FOUND"),
    ("GET", "/api/v1/agents", "rest", "ROUTE_NOT_FOUND"),
    ("GET", f"/agents/desk{CARD_PATH}/", "rest", "ROUTE_NOT_FOUND"),
    ("GET", f"{CARD_PATH}/more", "rest", "ROUTE_NOT_FOUND"),
    ("GET", "/healthz/", "rest", "ROUTE_NOT_FOUND"),
    ("GET", "//healthz", "rest", "ROUTE_NOT_FOUND"),
    ("GET", "/agents/desk/%2e%2e/other/tasks", "rest", "ROUTE_NOT_FOUND"),
]


@pytest.mark.parametrize(("method", "path", "form", "reason"), NOWHERE)
def test_what_is_not_there_is_told_only_to_those_who_are_known(
    world: World, method: str, path: str, form: str, reason: str
) -> None:
    for caller in ("anonymous", "wrong token", "expired", "owner", "colleague"):
        person = world.callers[caller]
        url = httpx.URL(person.base).copy_with(raw_path=path.encode())
        body: dict[str, Any] = {"json": {}} if method == "POST" else {}
        found = refusal(person.http.request(method, url, headers=VERSION, **body))
        assert (found.form, found.reason) == (form, "UNAUTHENTICATED" if caller in UNKNOWN else reason), caller


@pytest.mark.parametrize(("method", "path"), [("GET", "nowhere"), ("GET", ""), ("PUT", "tokens"), ("GET", "tasks")])
def test_admin_paths_that_are_not_there(world: World, method: str, path: str) -> None:
    reason = "METHOD_NOT_ALLOWED" if path == "tokens" else "ROUTE_NOT_FOUND"
    for caller, told in {
        "anonymous": "UNAUTHENTICATED",
        "wrong token": "UNAUTHENTICATED",
        "owner": "FORBIDDEN",
        "meter": "FORBIDDEN",
        "admin": reason,
        "operator": reason,
    }.items():
        found = refusal(world.callers[caller].ask(method, f"{ADMIN}/{path}"))
        assert (found.form, found.reason) == ("problem", told), caller


def test_a_method_that_there_is_not_is_told_only_to_those_who_are_known(world: World) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {}}
    assert refusal(world.callers["anonymous"].ask("POST", "/agents/desk", body)).reason == "UNAUTHENTICATED"
    assert refusal(world.owner.ask("POST", "/agents/desk", body)).reason == "METHOD_NOT_FOUND"


def test_a_body_is_not_even_read_without_a_credential(world: World) -> None:
    """Requests that cannot be parsed, or have another version, get 401 too."""
    for path in ("/agents/desk", "/agents/desk/message:send"):
        answer = httpx.post(world.people.base + path, content=b"{", headers={"A2A-Version": "9.9"})
        assert refusal(answer).reason == "UNAUTHENTICATED"


def test_a_bad_credential_is_never_passed_over_for_a_good_one(world: World) -> None:
    good = world.owner.http.headers["authorization"]
    secret = good.partition(" ")[2]
    url = f"{world.people.base}/agents/desk/tasks"
    mixed: list[list[tuple[str, str]]] = [
        [("Authorization", "Bearer roost_wrong-one"), ("X-API-Key", secret)],
        [("Authorization", "Basic b3duZXI6cGFzc3dvcmQ="), ("X-API-Key", secret)],
        [("Authorization", "Bearer roost_wrong-one"), ("Authorization", good)],
        [("Authorization", good), ("Authorization", "Bearer roost_wrong-one")],
        [("X-API-Key", "roost_wrong-one"), ("X-API-Key", secret)],
    ]
    for headers in mixed:
        assert refusal(httpx.get(url, headers=[*VERSION.items(), *headers])).reason == "UNAUTHENTICATED", headers
    assert httpx.get(url, headers={**VERSION, "Authorization": f"bEARER   {secret}"}).status_code == 200


def test_the_directory_and_the_first_page_name_only_what_the_caller_may_call(world: World) -> None:
    def named(caller: str) -> list[str]:
        agents = [item["name"] for item in world.callers[caller].ask("GET", "/agents/").json()["agents"]]
        shown = [item["id"] for item in world.callers[caller].ask("GET", "/").json()["agents"]]
        entries = world.callers[caller].ask("GET", "/.well-known/ai-catalog.json").json()["entries"]
        assert agents == shown == [entry["identifier"].rpartition("/")[2] for entry in entries]
        return agents

    assert named("owner") == ["desk"]
    assert named("elsewhere") == ["other"]
    assert named("admin") == []
    assert {"desk", "other"} <= {*named("colleague")}
    assert "keyed" not in named("colleague"), "it takes no bearer token"


def test_the_admin_secret_of_the_environment_opens_no_agent(world: World) -> None:
    answer = httpx.get(f"{world.people.base}/agents/desk/tasks", headers={**VERSION, **bearer(ADMIN_SECRET)})
    assert refusal(answer).reason == "FORBIDDEN"
