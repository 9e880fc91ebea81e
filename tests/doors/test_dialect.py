"""The paths of agentic-sandbox's v2: the canonical operations by other names, in a real host."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from roost.doors.sandbox import STATES, at_once
from roost.protocol.codec import decode
from roost.protocol.errors import A2AError
from roost.protocol.types import SendMessageConfiguration, SendMessageRequest
from tests.doors.agents import OPTIONAL, REQUIRED
from tests.doors.serving import AGENTS, healthy
from tests.doors.wire import VERSION, Frame, Rest, changed, entries, frames, message, sending, text_of
from tests.fuzz.bodies import nearly, rubbish
from tests.fuzz.doors import right_params
from tests.processes import FLEET, Server
from tests.waiting import eventually

IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
UNKNOWN = "https://agentic-sandbox.aiwg.io/extensions/nothing/v9"
HOOK = "http://127.0.0.1:9/hook"
OLDER = ("sunset", "deprecation", "deprecated")


class Dialect:
    """A client of the dialect. `ok` gives what it is answered with, `refused` the error after its form was checked."""

    def __init__(self, http: httpx.Client, base: str) -> None:
        self.http = http
        self.base = base

    def ask(
        self, method: str, path: str, agent: str = "hello", headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Without headers, as A2A 1.0."""
        url = f"{self.base}/agents/{agent}/v1{path}"
        answer = self.http.request(method, url, headers=VERSION if headers is None else headers, **more)
        assert not [name for name in OLDER if name in answer.headers], "these paths are not on their way out"
        return answer

    def ok(self, method: str, path: str, agent: str = "hello", **more: Any) -> Any:
        answer = self.ask(method, path, agent, **more)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/a2a+json"
        return answer.json()

    def refused(self, method: str, path: str, agent: str = "hello", **more: Any) -> dict[str, Any]:
        """And not one entry was written."""
        before = entries(self.http, self.base)
        found = problem(self.ask(method, path, agent, **more), agent)
        assert entries(self.http, self.base) == before
        return found

    def stream(self, method: str, path: str, agent: str, **headers: str) -> list[Frame]:
        url = f"{self.base}/agents/{agent}/v1{path}"
        named = {**VERSION, **{name.replace("_", "-"): value for name, value in headers.items()}}
        with self.http.stream(method, url, headers=named) as answer:
            assert answer.status_code == 200, answer.read()
            return list(frames(answer.iter_raw()))


def problem(answer: httpx.Response, agent: str) -> dict[str, Any]:
    """A2A's error is whole, and the dialect's is beside it and says the same."""
    body: dict[str, Any] = answer.json()
    assert body.keys() == {"error", "type", "title", "status", "detail", "code", "trace_id", "instance_id"}, body
    error = body["error"]
    assert error.keys() == {"code", "status", "message", "details"}
    assert error["details"][0].keys() >= {"@type", "reason", "domain"}
    assert error["code"] == answer.status_code
    assert answer.headers["content-type"] == "application/a2a+json"
    assert (body["status"], body["detail"]) == (answer.status_code, error["message"])
    assert body["instance_id"] == agent
    assert len(body["trace_id"]) == 32
    assert int(body["trace_id"], 16)
    return body


def fields(body: dict[str, Any]) -> list[str]:
    return [one["field"] for detail in body["error"]["details"] for one in detail.get("fieldViolations", [])]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    args = ("--root", "hello", "--push-allow-hosts", "127.0.0.1", "--push-attempts", "1")
    own = Path(__file__).parent / "dialect_agents.py"
    with healthy(FLEET, AGENTS, own, args=args, data=tmp_path_factory.mktemp("data")) as host:
        yield host


@pytest.fixture(scope="module")
def dialect(server: Server, http: httpx.Client) -> Dialect:
    return Dialect(http, server.url)


# Each path, beside the canonical one


def test_a_task_is_the_same_on_both_paths(dialect: Dialect, rest: Rest) -> None:
    task = rest.task("Ada")
    assert dialect.ok("GET", f"/tasks/{task['id']}") == rest.get(task["id"])
    shorter = {"historyLength": "0"}
    assert dialect.ok("GET", f"/tasks/{task['id']}", params=shorter) == rest.ok(
        "GetTask", {"id": task["id"], **shorter}
    )


def test_a_task_can_be_canceled(dialect: Dialect, rest: Rest) -> None:
    task = rest.begin(f"never {uuid.uuid4()}", "hold")
    canceled = dialect.ok("POST", f"/tasks/{task['id']}/cancel", "hold")
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert rest.get(task["id"], "hold") == canceled
    body = {"metadata": {"why": "changed my mind"}}
    other = rest.begin(f"never {uuid.uuid4()}", "hold")
    assert dialect.ok("POST", f"/tasks/{other['id']}/cancel", "hold", json=body)["id"] == other["id"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_task_can_be_followed_and_resumed(dialect: Dialect, rest: Rest, method: str) -> None:
    gate = str(uuid.uuid4())
    task = rest.begin(gate, "hold")
    eventually(lambda: "three" in text_of(rest.get(task["id"], "hold")))
    url = f"{dialect.base}/agents/hold/v1/tasks/{task['id']}/subscribe"
    with dialect.http.stream(method, url, headers=VERSION) as answer:
        found = frames(answer.iter_raw())
        assert next(found).data["task"]["status"]["state"] == "TASK_STATE_WORKING"
        rest.task(gate, "release")
        assert list(found)[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    canonical = rest.stream("SubscribeToTask", {"id": task["id"]}, "hold", {"Last-Event-ID": "2"})
    assert dialect.stream(method, f"/tasks/{task['id']}/subscribe", "hold", Last_Event_ID="2") == canonical


def test_a_webhook_can_be_set_read_listed_and_deleted(dialect: Dialect, rest: Rest) -> None:
    task = rest.task()
    configs = f"/tasks/{task['id']}/pushNotificationConfigs"
    asked = {"id": "mine", "url": HOOK, "authentication": {"scheme": "Bearer", "credentials": "s"}}
    assert dialect.ok("POST", configs, json=asked) == {**asked, "taskId": task["id"]}
    named = {"taskId": task["id"], "id": "mine"}
    shown = rest.ok("GetTaskPushNotificationConfig", named)
    assert dialect.ok("GET", f"{configs}/mine") == shown
    assert dialect.ok("GET", configs) == rest.ok("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert dialect.ok("DELETE", f"{configs}/mine") == {}
    assert dialect.ok("GET", configs) == {}
    assert rest.refused("GetTaskPushNotificationConfig", named).reason == "TASK_NOT_FOUND"


def test_an_agent_without_an_extended_card_says_so(dialect: Dialect, rest: Rest) -> None:
    reason = rest.refused("GetExtendedAgentCard", {}).reason
    assert dialect.refused("GET", "/extendedAgentCard")["code"] == reason.lower() == "unsupported_operation"


def test_the_agent_at_the_root_has_the_paths_too(dialect: Dialect, rest: Rest) -> None:
    task = rest.task()
    answer = dialect.http.get(f"{dialect.base}/v1/tasks/{task['id']}", headers=VERSION)
    assert answer.json() == rest.get(task["id"])
    assert problem(dialect.http.get(f"{dialect.base}/v1/tasks/none", headers=VERSION), "hello")["code"]


def test_an_agent_called_like_the_paths_keeps_those_of_its_tenant(http: httpx.Client, server: Server) -> None:
    sent = http.post(f"{server.url}/agents/v1/v1/message:send", json=sending(), headers=VERSION).json()["task"]
    found = http.get(f"{server.url}/agents/v1/v1/tasks", params={"pageSize": "1"}, headers=VERSION).json()
    assert ([task["id"] for task in found["tasks"]], found["pageSize"]) == ([sent["id"]], 1)


def test_openai_keeps_its_path(dialect: Dialect) -> None:
    body = {"model": "hello", "messages": [{"role": "user", "content": "Ada"}]}
    assert dialect.ask("POST", "/chat/completions", json=body).json()["object"] == "chat.completion"
    assert "instance_id" not in dialect.ask("POST", "/chat/completions", json={}).json()


# Sending


@pytest.mark.parametrize(
    "configuration",
    [None, {}, {"returnImmediately": None}, {"return_immediately": None}, {"historyLength": 0}],
    ids=str,
)
def test_a_message_is_answered_at_once(dialect: Dialect, rest: Rest, configuration: dict[str, Any] | None) -> None:
    gate = str(uuid.uuid4())
    body = {**sending(gate), "configuration": configuration}
    task = dialect.ok("POST", "/messages:send", "hold", json=body)["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    assert ("history" in task) == (not configuration or "historyLength" not in configuration)
    rest.task(gate, "release")
    assert text_of(rest.until(task["id"], "hold", "COMPLETED")) == "one two three four five six"


@pytest.mark.parametrize("name", ["returnImmediately", "return_immediately"])
def test_a_message_that_asks_to_wait_is_answered_when_the_task_is_over(dialect: Dialect, name: str) -> None:
    body = sending("Ada", configuration={name: False})
    assert dialect.ok("POST", "/messages:send", json=body)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_a_message_holds_arrives_as_it_was_sent(dialect: Dialect, rest: Rest) -> None:
    data = {"big": 2**53 + 1, "tenth": 0.1, "text": "🐦 \u2028 é", "none": None, "list": [[], {}]}
    sent = message(parts=[{"data": data}], metadata={"k": data})
    task = dialect.ok("POST", "/messages:send", "echo", json={"message": sent})["task"]
    rest.until(task["id"], "echo", "COMPLETED")
    (kept,) = rest.get(task["id"], "echo")["history"]
    assert (kept["parts"], kept["metadata"]) == ([{"data": data}], {"k": data})


SEND = right_params(["one", "two"])["SendMessage"]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.sampled_from([SEND, {**SEND, "configuration": {}}, {"message": SEND["message"]}]).flatmap(nearly) | rubbish())
def test_the_default_changes_nothing_else(body: bytes) -> None:
    """A valid request stays as it is, and an invalid one fails in the same way."""

    def read(sent: bytes) -> SendMessageRequest | type[A2AError]:
        try:
            found = decode(SendMessageRequest, sent)
        except A2AError as error:
            return type(error)
        configuration = found.configuration or SendMessageConfiguration()
        return replace(found, configuration=replace(configuration, return_immediately=True))

    assert read(at_once(body)) == read(body)


# Listing


def test_a_list_can_be_read_to_its_end(dialect: Dialect, rest: Rest) -> None:
    context = str(uuid.uuid4())
    made = {rest.task(str(number), contextId=context)["id"] for number in range(7)}
    pages: list[list[str]] = []
    cursor = ""
    while not pages or cursor:
        page = dialect.ok("GET", "/tasks", params={"contextId": context, "limit": "3", "cursor": cursor})
        canonical = {"contextId": context, "pageSize": 3, "pageToken": cursor}
        assert page == rest.ok("ListTasks", canonical)
        pages.append([task["id"] for task in page["tasks"]])
        cursor = page["nextPageToken"]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert {task for page in pages for task in page} == made


def test_a_list_can_be_of_one_state(dialect: Dialect, rest: Rest) -> None:
    context = str(uuid.uuid4())
    waiting = rest.task("hi", "interview", contextId=context)["id"]
    ended = rest.task("hi", "interview", contextId=context)["id"]
    rest.ok("CancelTask", {"id": ended}, "interview")

    def listed(state: str) -> list[str]:
        found = dialect.ok("GET", "/tasks", "interview", params={"contextId": context, "state": state})
        return [task["id"] for task in found["tasks"]]

    for word in ("input-required", "input_required", "INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"):
        assert listed(word) == [waiting]
    assert listed("canceled") == [ended]
    assert {*listed("")} == {waiting, ended}
    assert [listed(state) for state in STATES if state not in ("input_required", "canceled")] == [[]] * 6


# Who gets the dialect


CHOSEN: list[tuple[dict[str, str], str]] = [
    ({"A2A-Version": "1.0"}, ""),
    ({"A2A-Version": "1.0.1"}, ""),
    ({}, "?A2A-Version=1.0"),
    ({"A2A-Extensions": IDEMPOTENCY}, ""),
    ({"A2A-Extensions": f"urn:x, {UNKNOWN.upper()}"}, ""),
    ({"X-A2A-Extensions": IDEMPOTENCY}, ""),
]


@pytest.mark.parametrize(("headers", "query"), CHOSEN, ids=str)
def test_the_dialect_is_chosen_by_version_or_extension(dialect: Dialect, headers: dict[str, str], query: str) -> None:
    assert dialect.refused("GET", f"/tasks/none{query}", headers=headers)["code"] == "task.not_found"
    assert dialect.ok("GET", f"/tasks{query or '?'}&limit=1", headers=headers)["pageSize"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"A2A-Version": "0.3"},
        {"A2A-Version": "1.1"},
        {"A2A-Version": "0.3", "X-A2A-Extensions": IDEMPOTENCY},
        {"A2A-Extensions": "https://example.com/extensions/required/v1"},
        {"A2A-Extensions": f"urn:x:{IDEMPOTENCY}"},
    ],
    ids=str,
)
def test_others_do_not_get_it(dialect: Dialect, headers: dict[str, str]) -> None:
    answer = dialect.ask("GET", "/tasks/none", headers=headers)
    assert answer.is_client_error
    assert "instance_id" not in answer.text


def test_an_extension_alone_does_not_take_paths_that_the_dialect_does_not_have(dialect: Dialect) -> None:
    answer = dialect.ask("POST", "/message:send", headers={"X-A2A-Extensions": IDEMPOTENCY}, json={})
    assert answer.is_client_error
    assert "instance_id" not in answer.text


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
def test_an_extension_is_activated_and_echoed(dialect: Dialect, rest: Rest, header: str) -> None:
    headers, body = {header: f"{UNKNOWN}, {IDEMPOTENCY}"}, {"message": message(messageId=str(uuid.uuid4()))}
    first = dialect.ask("POST", "/messages:send", headers=headers, json=body)
    assert first.headers["a2a-extensions"] == IDEMPOTENCY
    rest.until(first.json()["task"]["id"], "hello", "COMPLETED")
    again = dialect.ask("POST", "/messages:send", headers=headers, json=body)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["task"]["id"] == first.json()["task"]["id"]
    other = {"message": {**body["message"], "parts": [{"text": "other"}]}}
    refused = dialect.refused("POST", "/messages:send", headers=headers, json=other)
    assert (refused["code"], refused["status"]) == ("idempotency.key_reused", 422)
    assert fields(refused) == ["message.messageId"]


def test_extensions_of_both_headers_count(dialect: Dialect) -> None:
    headers = {**VERSION, "A2A-Extensions": REQUIRED, "X-A2A-Extensions": OPTIONAL}
    body = sending(configuration={"returnImmediately": False})
    answer = dialect.ask("POST", "/messages:send", "strict", headers=headers, json=body)
    assert text_of(answer.json()["task"]) == f"{REQUIRED},{OPTIONAL}"
    assert answer.headers["a2a-extensions"] == f"{REQUIRED}, {OPTIONAL}"


# What is refused


JSON = {**VERSION, "Content-Type": "application/json"}
REFUSED: list[tuple[str, str, str, dict[str, Any], str, int, list[str]]] = [
    # method, agent, path, request, code, status, fields
    ("POST", "hello", "/messages:send", {"content": b"{", "headers": JSON}, "request.invalid_json", 400, []),
    ("POST", "hello", "/messages:send", {"content": b"\xff", "headers": JSON}, "request.invalid_json", 400, []),
    ("POST", "hello", "/messages:send", {"content": b"", "headers": JSON}, "request.invalid_json", 400, []),
    ("POST", "hello", "/messages:send", {"json": []}, "request.invalid_params", 400, ["body"]),
    ("POST", "hello", "/messages:send", {"json": {}}, "request.invalid_params", 400, ["message"]),
    (
        "POST",
        "hello",
        "/messages:send",
        {"json": {**sending(), "configuration": []}},
        "request.invalid_params",
        400,
        ["configuration"],
    ),
    (
        "POST",
        "hello",
        "/messages:send",
        {"json": sending(configuration={"returnImmediately": "soon"})},
        "request.invalid_params",
        400,
        ["configuration.returnImmediately"],
    ),
    (
        "POST",
        "hello",
        "/messages:send",
        {"content": b'{"message":' + b"[" * 5000 + b"]" * 5000 + b"}", "headers": JSON},
        "request.invalid_params",
        400,
        ["body"],
    ),
    (
        "POST",
        "hello",
        "/messages:send",
        {"content": b"{}", "headers": {**VERSION, "Content-Type": "text/plain"}},
        "request.content_type",
        400,
        ["Content-Type"],
    ),
    (
        "POST",
        "hello",
        "/messages:send",
        {"json": sending(configuration={"taskPushNotificationConfig": {"url": "http://10.0.0.1/"}})},
        "push.invalid_url",
        400,
        ["configuration.taskPushNotificationConfig.url"],
    ),
    ("POST", "hello", "/messages:send", {"json": sending(taskId="none")}, "task.not_found", 404, []),
    ("POST", "strict", "/messages:send", {"json": sending()}, "extension.required_not_activated", 400, []),
    ("GET", "hello", "/tasks?state=sleeping", {}, "request.invalid_params", 400, ["state"]),
    ("GET", "hello", "/tasks?state=unspecified", {}, "request.invalid_params", 400, ["state"]),
    ("GET", "hello", "/tasks?limit=0", {}, "request.invalid_params", 400, ["limit"]),
    ("GET", "hello", "/tasks?limit=101", {}, "request.invalid_params", 400, ["limit"]),
    ("GET", "hello", "/tasks?limit=many", {}, "request.invalid_params", 400, ["limit"]),
    ("GET", "hello", "/tasks?cursor=elsewhere", {}, "request.invalid_params", 400, ["cursor"]),
    ("GET", "hello", "/tasks?limit=1&pageSize=1", {}, "request.invalid_params", 400, ["limit"]),
    ("GET", "hello", "/tasks?historyLength=-1", {}, "request.invalid_params", 400, ["historyLength"]),
    ("GET", "hello", "/tasks?cursor=%ff", {}, "request.invalid_params", 400, ["query"]),
    ("GET", "hello", "/tasks?token=secret", {}, "request.invalid_params", 400, ["token"]),
    ("GET", "hello", "/tasks/none", {}, "task.not_found", 404, []),
    ("POST", "hello", "/tasks/none/cancel", {}, "task.not_found", 404, []),
    ("GET", "hello", "/tasks/none/subscribe", {}, "task.not_found", 404, []),
    ("GET", "hello", "/tasks/none/pushNotificationConfigs/x", {}, "task.not_found", 404, []),
    ("GET", "nobody", "/tasks", {}, "instance.not_found", 404, []),
    ("GET", "hello", "/nothing", {}, "route.not_found", 404, []),
    ("POST", "hello", "/message:send", {"json": sending()}, "route.not_found", 404, []),
    ("PUT", "hello", "/tasks", {}, "route.method_not_allowed", 405, []),
    ("GET", "hello", "/tasks/x/cancel", {}, "route.method_not_allowed", 405, []),
]


@pytest.mark.parametrize(("method", "agent", "path", "request_", "code", "status", "at"), REFUSED, ids=str)
def test_what_is_wrong_is_told_by_the_words_of_the_dialect(
    dialect: Dialect,
    method: str,
    agent: str,
    path: str,
    request_: dict[str, Any],
    code: str,
    status: int,
    at: list[str],
) -> None:
    found = dialect.refused(method, path, agent, **request_)
    assert (found["code"], found["status"], fields(found)) == (code, status, at)
    if at in (["state"], ["limit"], ["cursor"]):
        assert at[0] in found["detail"]


def test_a_body_that_is_too_long_is_refused(dialect: Dialect) -> None:
    found = dialect.refused("POST", "/messages:send", content=b" " * (17 << 20), headers=JSON)
    assert (found["code"], found["status"]) == ("request.too_large", 413)


def test_a_task_that_is_over_cannot_be_canceled_or_followed(dialect: Dialect, rest: Rest) -> None:
    task = rest.task()["id"]
    assert dialect.refused("POST", f"/tasks/{task}/cancel")["code"] == "task.not_cancelable"
    assert dialect.refused("GET", f"/tasks/{task}/subscribe")["code"] == "unsupported_operation"


def test_a_webhook_is_refused_by_the_words_of_the_dialect(dialect: Dialect, rest: Rest) -> None:
    configs = f"/tasks/{rest.task()['id']}/pushNotificationConfigs"
    for url in ("http://10.0.0.1/", "ftp://example.com/"):
        found = dialect.refused("POST", configs, json={"url": url})
        assert (found["code"], fields(found)) == ("push.invalid_url", ["url"])
    assert dialect.refused("GET", f"{configs}/none")["code"] == "push.config_not_found"


def test_an_error_names_the_trace_that_it_belongs_to(dialect: Dialect) -> None:
    trace = uuid.uuid4().hex
    known = {**VERSION, "traceparent": f"00-{trace}-{'1' * 16}-01"}
    assert dialect.refused("GET", "/tasks/none", headers=known)["trace_id"] == trace
    for odd in ("", "00-x-1-01", f"00-{'0' * 32}-{'1' * 16}-01"):
        found = dialect.refused("GET", "/tasks/none", headers={**VERSION, "traceparent": odd})
        assert found["trace_id"] not in (trace, "0" * 32)


def test_an_error_is_plain_json_where_that_is_preferred(dialect: Dialect) -> None:
    request = dialect.http.build_request("GET", f"{dialect.base}/agents/hello/v1/tasks/none", headers=VERSION)
    answer = dialect.http.send(changed(request, {"Accept": "application/json"}))
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == "task.not_found"
