"""Whatever a client sends: a clear error in the binding's own form that names the field, and nothing changes.

`Door.refused` checks the form of the error (google.rpc.Status with ErrorInfo, or a JSON-RPC error with a list
of details) and that not one entry was written; the fixture `server` that there was no 500 and no traceback.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.doors.agents import OPTIONAL, REQUIRED
from tests.doors.serving import healthy
from tests.doors.wire import VERSION, Door, Rest, Rpc, changed, entries, message, metrics, sending, streams
from tests.processes import Server
from tests.waiting import eventually

MAX_BODY = 64 * 1024
UNKNOWN = "01a1e3bf-0000-7000-8000-000000000000"
MISSING = object()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with healthy(data=tmp_path_factory.mktemp("data"), args=("--max-body", str(MAX_BODY))) as host:
        yield host


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}


def altered(**changes: Any) -> dict[str, Any]:
    """SendMessageRequest whose message has these fields instead."""
    return {"message": {**message(), **changes}}


def configured(**configuration: Any) -> dict[str, Any]:
    return sending(configuration=configuration)


# Fields


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("field", ["messageId", "role", "parts"])
def test_a_required_field_of_the_message_that_is_missing_is_named(door: Door, operation: str, field: str) -> None:
    problem = door.refused(operation, {"message": without(message(), field)})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", [f"message.{field}"])
    assert field in problem.message


@pytest.mark.parametrize("params", [{}, {"message": None}])
def test_a_missing_message_is_named(door: Door, params: dict[str, Any]) -> None:
    problem = door.refused("SendMessage", params)
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["message"])


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"message": "hello"}, "message"),
        ({"message": []}, "message"),
        (altered(messageId=""), "message.messageId"),
        (altered(messageId=5), "message.messageId"),
        (altered(messageId=None), "message.messageId"),
        (altered(role="user"), "message.role"),
        (altered(role="ROLE_SYSTEM"), "message.role"),
        (altered(role=7), "message.role"),
        (altered(role="ROLE_UNSPECIFIED"), "message"),
        (altered(parts=[]), "message.parts"),
        (altered(parts={"text": "x"}), "message.parts"),
        (altered(parts=["x"]), "message.parts[0]"),
        (altered(parts=[{}]), "message.parts[0]"),
        (altered(parts=[{"text": None}]), "message.parts[0]"),
        (altered(parts=[{"text": "x", "url": "https://example.com"}]), "message.parts[0]"),
        (altered(parts=[{"text": "x", "data": None}]), "message.parts[0]"),
        (altered(parts=[{"text": "x"}, {"text": 5}]), "message.parts[1].text"),
        (altered(parts=[{"raw": "%%%"}]), "message.parts[0].raw"),
        (altered(parts=[{"text": "x", "metadata": []}]), "message.parts[0].metadata"),
        (altered(metadata="x"), "message.metadata"),
        (altered(extensions="x"), "message.extensions"),
        (altered(referenceTaskIds=[1]), "message.referenceTaskIds[0]"),
        (altered(contextId=5), "message.contextId"),
        (altered(taskId={}), "message.taskId"),
        ({**sending(), "configuration": []}, "configuration"),
        ({**sending(), "metadata": 5}, "metadata"),
        ({**sending(), "tenant": 5}, "tenant"),
        (configured(historyLength=-1), "configuration.historyLength"),
        (configured(historyLength="many"), "configuration.historyLength"),
        (configured(historyLength=1.5), "configuration.historyLength"),
        (configured(historyLength=2**31), "configuration.historyLength"),
        (configured(returnImmediately="yes"), "configuration.returnImmediately"),
        (configured(acceptedOutputModes="text/plain"), "configuration.acceptedOutputModes"),
        (configured(taskPushNotificationConfig={}), "configuration.taskPushNotificationConfig.url"),
    ],
    ids=lambda value: json.dumps(value)[-60:] if isinstance(value, dict) else value,
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(door: Door, params: dict[str, Any], field: str) -> None:
    problem = door.refused("SendMessage", params)
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", [field])
    assert field.rpartition(".")[2] in problem.message


def test_the_number_of_contents_of_a_part_is_said(door: Door) -> None:
    none = door.refused("SendMessage", altered(parts=[{"mediaType": "text/plain"}]))
    two = door.refused("SendMessage", altered(parts=[{"text": "x", "raw": "eA=="}]))
    assert "exactly one of text, raw, url and data; this one has 0" in none.message
    assert "exactly one of text, raw, url and data; this one has 2" in two.message


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"pageSize": 0}, "pageSize"),
        ({"pageSize": 101}, "pageSize"),
        ({"pageSize": -1}, "pageSize"),
        ({"pageSize": "many"}, "pageSize"),
        ({"historyLength": -1}, "historyLength"),
        ({"historyLength": "x"}, "historyLength"),
        ({"status": "TASK_STATE_RUNNING"}, "status"),
        ({"status": "completed"}, "status"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
        ({"statusTimestampAfter": "2026-01-01T00:00:00"}, "statusTimestampAfter"),
        ({"statusTimestampAfter": "2026-13-01T00:00:00Z"}, "statusTimestampAfter"),
        ({"includeArtifacts": "perhaps"}, "includeArtifacts"),
        ({"pageToken": "%%%"}, "pageToken"),
        ({"pageToken": "bm9uc2Vuc2U"}, "pageToken"),
        ({"pageToken": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OmFiYw"}, "pageToken"),  # 24 nines, then :abc
        ({"tenant": "stream"}, "tenant"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
)
def test_a_wrong_option_of_list_is_refused_by_its_name(door: Door, params: dict[str, Any], field: str) -> None:
    problem = door.refused("ListTasks", params)
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", [field])


def test_a_negative_history_length_of_get_is_refused(door: Door) -> None:
    problem = door.refused("GetTask", {"id": door.task()["id"], "historyLength": -1})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["historyLength"])


@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
def test_a_task_id_that_is_missing_is_named(rpc: Rpc, operation: str) -> None:
    problem = rpc.refused(operation, {})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["id"])


def test_a_path_without_a_task_id_is_no_path(rest: Rest, server: Server) -> None:
    for path in ("/tasks/", "/tasks/:cancel", "/tasks/:subscribe"):
        assert rest.refuses(rest.raw(b"{}", path=path)).reason == "ROUTE_NOT_FOUND"


def test_an_unknown_field_is_ignored(door: Door) -> None:
    """Section 5.7: for clients that are newer than the host."""
    params = {**altered(novelty={"a": 1}), "another": True}
    assert door.ok("SendMessage", params)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


# Bodies


@pytest.mark.parametrize(
    "body",
    [b"", b"   ", b"{", b"nonsense", b'{"a":}', b"\x00\x01", b"\xff", b"{'a': 1}", b"NaN"],
)
def test_invalid_json_is_said_to_be_so(door: Door, body: bytes) -> None:
    problem = door.refuses(door.raw(body))
    assert problem.reason == "INVALID_JSON"
    assert problem.message.startswith("Invalid JSON payload")


def test_json_that_goes_on_after_its_end_is_invalid(door: Door) -> None:
    assert door.refuses(door.raw(door.request("SendMessage", sending()).content + b" x")).reason == "INVALID_JSON"


def test_text_that_is_no_utf8_is_invalid(door: Door) -> None:
    request = door.request("SendMessage", sending("MARK"))
    assert door.refuses(door.raw(request.content.replace(b"MARK", b"\xff"))).reason == "INVALID_JSON"
    assert door.refuses(door.raw(request.content.replace(b"MARK", b"\\ud800"))).reason == "INVALID_JSON"


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null", b"true", b"[[]]"])
def test_json_that_is_no_object_is_refused(door: Door, body: bytes) -> None:
    assert door.refuses(door.raw(body)).reason in ("INVALID_PARAMS", "INVALID_REQUEST")


@pytest.mark.parametrize("depth", [200, 20_000])
def test_json_that_is_nested_too_deep_is_refused(door: Door, depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    part = b'{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"data":%b}]}}' % nested
    body = part if door.name == "HTTP+JSON" else b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%b}' % part
    request = door.raw(body[:MAX_BODY] if depth > 10_000 else body)
    assert door.refuses(request).reason in ("INVALID_PARAMS", "PAYLOAD_TOO_LARGE")


def test_a_body_over_the_limit_is_too_large(door: Door) -> None:
    problem = door.refused("SendMessage", sending("x" * MAX_BODY))
    assert problem.reason == "PAYLOAD_TOO_LARGE"
    assert str(MAX_BODY) in problem.message


def test_a_chunked_body_over_the_limit_is_too_large(door: Door, http: httpx.Client) -> None:
    plain = door.request("SendMessage", sending("x" * MAX_BODY))
    pieces = (plain.content[at : at + 4096] for at in range(0, len(plain.content), 4096))
    headers = {**VERSION, "Content-Type": "application/json"}
    chunked = http.build_request("POST", plain.url, content=pieces, headers=headers)
    assert chunked.headers["transfer-encoding"] == "chunked"
    assert door.refuses(chunked).reason == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_body_that_never_ends_is_answered_all_the_same(server: Server, door: Door, at_once: bool) -> None:
    """The answer comes at the limit, not at the end, however the pieces come."""
    head = (
        f"POST {door.raw(b'').url.path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    pieces = [head.encode(), *[b"1000\r\n" + b" " * 4096 + b"\r\n"] * (MAX_BODY // 4096 + 1)]
    with closing(socket.create_connection(("127.0.0.1", server.port), 60)) as client:
        for piece in [b"".join(pieces)] if at_once else pieces:
            client.sendall(piece)
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_body_at_the_limit_is_read(door: Door) -> None:
    request = door.request("SendMessage", sending())
    padded = door.raw(request.content + b" " * (MAX_BODY - len(request.content)))
    assert door.result(door.http.send(padded))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None, ""])
def test_another_content_type_is_refused(door: Door, kind: str | None) -> None:
    """400 and ContentTypeNotSupported by section 5.4, and what keeps simple requests of web pages out."""
    problem = door.refused("SendMessage", sending(), headers={"Content-Type": kind})
    assert (problem.reason, problem.fields) == ("CONTENT_TYPE_NOT_SUPPORTED", ["Content-Type"])
    assert "application/a2a+json" in problem.message


@pytest.mark.parametrize(
    "kind", ["application/json", "application/a2a+json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_both_json_types_are_taken(door: Door, kind: str) -> None:
    assert "task" in door.ok("SendMessage", sending(), headers={"Content-Type": kind})


@pytest.mark.parametrize("operation", ["CancelTask", "SubscribeToTask"])
def test_a_body_that_is_no_json_is_refused_where_none_is_needed(rest: Rest, operation: str) -> None:
    path = "/tasks/x:cancel" if operation == "CancelTask" else "/tasks/x:subscribe"
    assert rest.refuses(rest.raw(b"nonsense", path=path)).reason == "INVALID_JSON"
    assert rest.refuses(rest.raw(b"[]", path=path)).reason == "INVALID_PARAMS"


# Paths and methods


def test_an_unknown_method_of_json_rpc_is_refused_with_those_that_there_are(rpc: Rpc) -> None:
    body = {"jsonrpc": "2.0", "id": "a", "method": "message/send", "params": {}}
    problem = rpc.refuses(rpc.raw(json.dumps(body).encode()))
    assert (problem.reason, problem.id) == ("METHOD_NOT_FOUND", "a")
    assert "SendMessage" in problem.message


@pytest.mark.parametrize(
    "path", ["/message:shout", "/nothing", "/tasks/1/2/3/4", "/message:send/", "/v2/message:send/x"]
)
def test_an_unknown_path_is_not_found(rest: Rest, path: str) -> None:
    assert rest.refuses(rest.raw(b"{}", path=path)).reason == "ROUTE_NOT_FOUND"


def test_an_unknown_path_of_the_host_is_not_found(rest: Rest, server: Server, http: httpx.Client) -> None:
    problem = rest.problem(http.get(f"{server.url}/nothing"))
    assert problem.reason == "ROUTE_NOT_FOUND"
    assert "GET /" in problem.message


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("DELETE", "/tasks", "GET"),
        ("POST", "/tasks/x", "GET"),
        ("GET", "/tasks/x:cancel", "POST"),
        ("DELETE", "/tasks/x:subscribe", "GET, POST"),
        ("PATCH", "/tasks/x/pushNotificationConfigs", "POST, GET"),
        ("POST", "/tasks/x/pushNotificationConfigs/y", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
        ("GET", "", "POST"),
        ("GET", "/", "POST"),
        ("POST", "/.well-known/agent-card.json", "GET, HEAD"),
    ],
)
def test_another_http_method_is_refused_with_those_allowed(
    rest: Rest, server: Server, http: httpx.Client, method: str, path: str, allowed: str
) -> None:
    response = http.request(method, f"{server.url}/agents/hello{path}", headers=VERSION)
    assert rest.problem(response).reason == "METHOD_NOT_ALLOWED"
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/", "/agents/", "/healthz", "/readyz", "/metrics", "/.well-known/agent-card.json"])
def test_the_hosts_own_paths_only_read(server: Server, http: httpx.Client, path: str) -> None:
    response = http.delete(f"{server.url}{path}")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


def test_an_unknown_agent_is_not_found(door: Door) -> None:
    problem = door.refused("SendMessage", sending(), agent="nobody")
    assert problem.reason == "AGENT_NOT_FOUND"
    assert "nobody" in problem.message
    assert "/agents/" in problem.message


@pytest.mark.parametrize("task_id", [UNKNOWN, "x", "a/b", "' OR 1=1 --", "\x00", "täsk", "x" * 2000])
@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
def test_an_unknown_task_is_not_found(rpc: Rpc, operation: str, task_id: str) -> None:
    problem = rpc.refused(operation, {"id": task_id})
    assert (problem.reason, problem.metadata["taskId"]) == ("TASK_NOT_FOUND", task_id)


@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
def test_an_unknown_task_is_not_found_by_path(rest: Rest, operation: str) -> None:
    problem = rest.refused(operation, {"id": UNKNOWN})
    assert (problem.reason, problem.metadata["taskId"]) == ("TASK_NOT_FOUND", UNKNOWN)


def test_a_message_to_an_unknown_task_is_refused(door: Door) -> None:
    assert door.refused("SendMessage", sending(taskId=UNKNOWN)).reason == "TASK_NOT_FOUND"
    assert door.refused("SendStreamingMessage", sending(taskId=UNKNOWN)).reason == "TASK_NOT_FOUND"


def test_a_message_to_a_finished_task_is_refused(door: Door) -> None:
    task = door.task()
    for operation in ("SendMessage", "SendStreamingMessage"):
        problem = door.refused(operation, sending(taskId=task["id"]))
        assert problem.reason == "UNSUPPORTED_OPERATION"
        assert "without taskId" in problem.message


def test_a_message_to_a_working_task_is_refused(door: Door) -> None:
    gate = str(uuid.uuid4())
    task = door.begin(gate, "hold")
    eventually(lambda: door.get(task["id"], "hold").get("artifacts"))
    assert door.refused("SendMessage", sending(taskId=task["id"]), "hold").reason == "UNSUPPORTED_OPERATION"
    door.task(gate, "release")
    assert door.until(task["id"], "hold", "COMPLETED")["id"] == task["id"]


def test_a_context_that_is_not_the_tasks_is_refused(door: Door) -> None:
    asked = door.task("hi", "ask")
    problem = door.refused("SendMessage", sending("Ada", taskId=asked["id"], contextId="another"), "ask")
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["message.contextId"])
    assert door.get(asked["id"], "ask") == asked


def test_cancel_and_subscribe_of_a_finished_task_are_refused(door: Door) -> None:
    task = door.task()
    assert door.refused("CancelTask", {"id": task["id"]}).reason == "TASK_NOT_CANCELABLE"
    assert door.refused("SubscribeToTask", {"id": task["id"]}).reason == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize(
    "operation",
    [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ],
)
def test_webhooks_of_a_task_that_is_not_there_are_refused(door: Door, operation: str) -> None:
    asked = {"taskId": "x", "id": "y", "url": "https://example.com/hook"}
    assert door.refused(operation, asked).reason == "TASK_NOT_FOUND"


def test_an_extended_card_is_not_supported(door: Door) -> None:
    assert door.refused("GetExtendedAgentCard", {}).reason == "UNSUPPORTED_OPERATION"


def test_an_agent_with_too_much_to_do_says_when_to_come_back(door: Door, server: Server) -> None:
    gate = str(uuid.uuid4())
    tasks = [door.begin(gate, "narrow") for _ in range(2)]
    request = door.request("SendMessage", sending(gate), "narrow")
    assert door.refuses(request).reason == "TOO_MANY_REQUESTS"
    assert int(door.http.send(request).headers["retry-after"]) > 0
    door.task(gate, "release")
    for task in tasks:
        assert door.until(task["id"], "narrow", "COMPLETED")
    assert door.task(gate, "narrow")["status"]["state"] == "TASK_STATE_COMPLETED"


# Version, extensions, tenant


@pytest.mark.parametrize("version", [None, "", "0.3"])
def test_a_request_without_version_is_told_which_header_to_send(door: Door, version: str | None) -> None:
    """It is one of A2A 0.3, which has no such method in JSON-RPC, and no such path in REST."""
    problem = door.refused("SendMessage", sending(), headers={"A2A-Version": version})
    assert problem.reason == ("METHOD_NOT_FOUND" if isinstance(door, Rpc) else "VERSION_NOT_SUPPORTED")
    assert "0.3" in problem.message
    assert "`A2A-Version: 1.0`" in problem.message


@pytest.mark.parametrize("version", ["99.0", "2.0", "1", "1.1", "1.00", "one"])
def test_another_version_is_refused(door: Door, version: str) -> None:
    problem = door.refused("SendMessage", sending(), headers={"A2A-Version": version})
    assert problem.reason == "VERSION_NOT_SUPPORTED"
    served = "0.3, 1.0" if isinstance(door, Rpc) else "1.0"
    assert problem.metadata == {"requestedVersion": version, "supportedVersions": served}


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_the_version_may_come_by_header_or_query(door: Door, version: str) -> None:
    assert "task" in door.ok("SendMessage", sending(), headers={"A2A-Version": version})
    request = changed(door.request("SendMessage", sending()), {"A2A-Version": None})
    request.url = request.url.copy_merge_params({"A2A-Version": version})
    assert "task" in door.result(door.http.send(request))


def test_another_version_by_query_is_refused(door: Door) -> None:
    request = changed(door.request("SendMessage", sending()), {"A2A-Version": None})
    request.url = request.url.copy_merge_params({"A2A-Version": "99.0"})
    assert door.refuses(request).metadata["requestedVersion"] == "99.0"


def test_the_header_wins_over_the_query(door: Door) -> None:
    request = changed(door.request("SendMessage", sending()), {"A2A-Version": "99.0"})
    request.url = request.url.copy_merge_params({"A2A-Version": "1.0"})
    assert door.refuses(request).reason == "VERSION_NOT_SUPPORTED"


def test_a_required_extension_that_is_not_named_is_refused(door: Door) -> None:
    problem = door.refused("SendMessage", sending(), "strict")
    assert (problem.reason, problem.metadata["extension"]) == ("EXTENSION_SUPPORT_REQUIRED", REQUIRED)
    assert "A2A-Extensions" in problem.message


def test_the_refusal_of_an_extension_carries_the_requests_id(rpc: Rpc) -> None:
    body = {"jsonrpc": "2.0", "id": "mine", "method": "SendMessage", "params": sending()}
    assert rpc.refuses(rpc.raw(json.dumps(body).encode(), "strict")).id == "mine"


def test_only_extensions_that_the_agent_has_are_activated(door: Door) -> None:
    named = {"A2A-Extensions": f"urn:unknown, {OPTIONAL},{REQUIRED}"}
    response = door.call("SendMessage", sending(), "strict", headers=named)
    assert response.headers["a2a-extensions"] == f"{REQUIRED}, {OPTIONAL}"
    assert "a2a-extensions" not in door.call("SendMessage", sending(), headers={"A2A-Extensions": "urn:x"}).headers


def test_a_tenant_that_is_another_agent_is_refused(door: Door) -> None:
    problem = door.refused("SendMessage", {**sending(), "tenant": "stream"})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["tenant"])
    assert "'stream'" in problem.message
    assert "'hello'" in problem.message


def test_a_tenant_that_is_the_agent_is_taken(door: Door) -> None:
    assert "task" in door.ok("SendMessage", {**sending(), "tenant": "hello"})


def test_the_tenant_may_stand_in_the_path(rest: Rest, http: httpx.Client) -> None:
    """a2a.proto binds every operation a second time below /{tenant}."""
    task = rest.task()
    body = json.dumps(sending()).encode()
    assert "task" in rest.result(http.send(rest.raw(body, path="/message:send")))
    assert "task" in rest.result(http.send(rest.raw(body, path="/hello/message:send")))
    found = http.get(f"{rest.base}/agents/hello/hello/tasks/{task['id']}", headers=VERSION)
    assert rest.result(found)["id"] == task["id"]
    assert rest.result(http.get(f"{rest.base}/agents/hello/hello/tasks", headers=VERSION))["tasks"]


def test_another_tenant_in_the_path_is_refused(rest: Rest) -> None:
    problem = rest.refuses(rest.raw(json.dumps(sending()).encode(), path="/stream/message:send"))
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["tenant"])


# JSON-RPC's own


@pytest.mark.parametrize("path", ["", "/", "/hello"])
def test_json_rpc_answers_at_the_agents_url_with_and_without_a_slash(rpc: Rpc, path: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending()}
    assert "task" in rpc.result(rpc.http.send(rpc.raw(json.dumps(body).encode(), path=path)))


@pytest.mark.parametrize("value", ['"text"', "7", "-1.5", "1e3", "null", '""', '"\\u00e9"', "12345678901234567890123"])
def test_the_id_of_a_request_comes_back_as_it_was(rpc: Rpc, value: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{value},"method":"GetTask","params":{{"id":"x"}}}}'
    response = rpc.http.send(rpc.raw(body.encode()))
    assert f'"id":{value},' in response.text
    assert rpc.problem(response).reason == "TASK_NOT_FOUND"


def test_a_request_without_id_is_answered_with_null(rpc: Rpc) -> None:
    body = b'{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}'
    problem = rpc.refuses(rpc.raw(body))
    assert (problem.reason, problem.id) == ("TASK_NOT_FOUND", None)


@pytest.mark.parametrize("value", ["{}", "[]", "true", "false", "[1]", json.dumps("x" * 2000)])
def test_an_id_that_json_rpc_does_not_know_is_refused(rpc: Rpc, value: str) -> None:
    """Nor one so long that a stream, which repeats it with every event, would carry little else."""
    body = f'{{"jsonrpc":"2.0","id":{value},"method":"GetTask","params":{{"id":"x"}}}}'
    problem = rpc.refuses(rpc.raw(body.encode()))
    assert (problem.reason, problem.fields, problem.id) == ("INVALID_REQUEST", ["id"], None)


def test_an_id_that_is_no_utf8_is_not_sent_back(rpc: Rpc) -> None:
    body = b'{"jsonrpc":"2.0","id":"\xff","method":"GetTask","params":{"id":"x"}}'
    assert rpc.refuses(rpc.raw(body)).reason == "INVALID_JSON"


@pytest.mark.parametrize(
    ("envelope", "field"),
    [
        ({"id": 1, "method": "GetTask", "params": {"id": "x"}}, "jsonrpc"),
        ({"jsonrpc": "1.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}, "jsonrpc"),
        ({"jsonrpc": 2.0, "id": 1, "method": "GetTask", "params": {"id": "x"}}, "jsonrpc"),
        ({"jsonrpc": "2.0", "id": 1, "params": {"id": "x"}}, "method"),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, "method"),
    ],
)
def test_what_is_no_json_rpc_request_is_refused(rpc: Rpc, envelope: dict[str, Any], field: str) -> None:
    problem = rpc.refuses(rpc.raw(json.dumps(envelope).encode()))
    assert (problem.reason, problem.fields) == ("INVALID_REQUEST", [field])


@pytest.mark.parametrize("version", ["1.0", "", "0.3"])
@pytest.mark.parametrize("value", ["7", '"seven"', "-1.5", "null"])
@pytest.mark.parametrize(
    "body",
    [
        '{"jsonrpc":"2.0","id":%s,"params":{}}',
        '{"id":%s,"method":"GetTask"}',
        '{"jsonrpc":"1.0","id":%s,"method":"GetTask"}',
        '{"params":[],"method":5,"jsonrpc":2,"id":%s}',
    ],
)
def test_the_refusal_of_what_is_no_request_carries_its_id(rpc: Rpc, body: str, value: str, version: str) -> None:
    request = changed(rpc.raw((body % value).encode()), {"A2A-Version": version})
    response = rpc.http.send(request)
    assert response.json()["error"]["code"] == -32600
    assert f'"id":{value},' in response.text


@pytest.mark.parametrize("version", ["1.0", "", "0.3"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","params":{}}',
        b'{"jsonrpc":"2.0","id":{"a":1},"params":{}}',
        b'{"jsonrpc":"2.0","id":true}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * 2000 + b'"}',
        b'[{"jsonrpc":"2.0","id":7,"params":{}}]',
        b"[]",
        b"7",
    ],
)
def test_where_there_is_no_id_to_repeat_the_refusal_has_null(rpc: Rpc, body: bytes, version: str) -> None:
    answer = rpc.http.send(changed(rpc.raw(body), {"A2A-Version": version})).json()
    assert (answer["error"]["code"], answer["id"]) == (-32600, None)


@pytest.mark.parametrize("params", [[], "x", 5, None])
def test_params_that_are_no_object_are_refused(rpc: Rpc, params: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    assert rpc.refuses(rpc.raw(json.dumps(body).encode())).reason == "INVALID_PARAMS"


def test_a_batch_is_refused(rpc: Rpc) -> None:
    one = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending()}
    problem = rpc.refuses(rpc.raw(json.dumps([one, one]).encode()))
    assert problem.reason == "INVALID_REQUEST"
    assert "batch" in problem.message


# Last-Event-ID


@pytest.mark.parametrize("value", ["garbage", "-1", "1.5", "", "٣", "9" * 40, "0", "999"])
def test_a_last_event_id_that_is_no_event_of_the_task_is_refused(door: Door, value: str) -> None:
    asked = door.task("hi", "ask")
    problem = door.refused("SubscribeToTask", {"id": asked["id"]}, "ask", headers={"Last-Event-ID": value})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["Last-Event-ID"])


def test_a_stream_that_sends_a_message_cannot_be_resumed(door: Door) -> None:
    """A reconnect must not send the message a second time."""
    problem = door.refused("SendStreamingMessage", sending(), headers={"Last-Event-ID": "1"})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", ["Last-Event-ID"])
    assert ":subscribe" in problem.message


# Who may come


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.nip.io", "localhost.evil.example", "10.0.0.1:80", ""])
def test_a_foreign_host_is_refused(door: Door, host: str) -> None:
    """DNS rebinding: a web page's own name that resolves to this machine."""
    problem = door.refused("SendMessage", sending(), headers={"Host": host})
    assert problem.reason == "FORBIDDEN"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8080", "agents.localhost"])
def test_a_name_of_this_machine_is_taken(door: Door, host: str) -> None:
    assert "task" in door.ok("SendMessage", sending(), headers={"Host": host})


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
def test_a_foreign_origin_is_refused(door: Door, origin: str) -> None:
    problem = door.refused("SendMessage", sending(), headers={"Origin": origin})
    assert problem.reason == "FORBIDDEN"
    assert origin in problem.message


def test_the_hosts_own_origin_is_taken(door: Door, server: Server) -> None:
    assert "task" in door.ok("SendMessage", sending(), headers={"Origin": server.url})


FORWARDED = {
    "Forwarded": "for=10.0.0.1",
    "X-Forwarded-For": "10.0.0.1",
    "X-Forwarded-Host": "example.com",
    "X-Forwarded-Proto": "https",
    "X-Real-IP": "10.0.0.1",
}


@pytest.mark.parametrize("header", FORWARDED)
def test_forwarded_headers_are_refused_from_anyone(door: Door, header: str) -> None:
    problem = door.refused("SendMessage", sending(), headers={header: FORWARDED[header]})
    assert problem.reason == "FORBIDDEN"
    assert "--trusted-proxy" in problem.message


def test_forwarded_headers_are_taken_from_a_trusted_proxy() -> None:
    """And change nothing: the card still names the bound address."""
    with healthy(args=("--trusted-proxy", "127.0.0.1/32")) as host, httpx.Client() as http:
        for door in (Rest(http, host.url), Rpc(http, host.url)):
            assert "task" in door.ok("SendMessage", sending(), headers=FORWARDED)
        card = http.get(f"{host.url}/agents/hello/.well-known/agent-card.json", headers=FORWARDED).json()
        assert card["supportedInterfaces"][0]["url"] == f"{host.url}/agents/hello"


def test_forwarded_headers_of_another_proxy_than_the_trusted_are_refused() -> None:
    with healthy(args=("--trusted-proxy", "10.0.0.0/8")) as host, httpx.Client() as http:
        for door in (Rest(http, host.url), Rpc(http, host.url)):
            assert door.refused("SendMessage", sending(), headers=FORWARDED).reason == "FORBIDDEN"


# Below HTTP


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "GET agents HTTP/1.1",
        "GET /agents/ HTTP/9.9",
        "CONNECT localhost:80 HTTP/1.1",
        "POST /agents/hello HTTP/1.1\r\nContent-Length: abc",
        "POST /agents/hello HTTP/1.1\r\nContent-Length: 99999999999999999999",
        "POST /agents/hello HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        "GET /agents/hello/tasks?status=%ff HTTP/1.1",
        "GET /agents/hello/tasks?pageToken=" + "A" * 20_000 + " HTTP/1.1",
        "GET /agents/hello/tasks?" + "a=1&" * 100 + " HTTP/1.1",
    ],
    ids=lambda line: line[:50],
)
def test_what_is_no_request_is_a_bad_one(server: Server, line: str) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port), 60)) as client:
        client.sendall(f"{line}\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n".encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", ["%zz", "hello/tasks/%ff", "hello/tasks/%00", "../metrics", "hello/tasks/..%2f..%2fx"])
def test_a_path_leads_nowhere_else_by_its_encoding(server: Server, path: str) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port), 60)) as client:
        client.sendall(f"GET /agents/{path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n".encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 404 ")


# Clients that go away, and those that stay


def test_a_client_that_leaves_in_the_middle_of_its_body_changes_nothing(
    door: Door, server: Server, http: httpx.Client
) -> None:
    before, left = entries(http, server.url), _left(http, server.url)
    body = door.request("SendMessage", sending()).content
    path = door.raw(b"").url.path
    for sent in (0, 1, len(body) // 2, len(body) - 1):
        with closing(socket.create_connection(("127.0.0.1", server.port), 60)) as client:
            client.sendall(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body[:sent]
            )
    eventually(lambda: _left(http, server.url) == left + 4)
    assert entries(http, server.url) == before
    assert "task" in door.ok("SendMessage", sending())


def _left(http: httpx.Client, base: str) -> float:
    """Requests whose client left before there was an answer."""
    return sum(value for (_, labels), value in metrics(http, base).items() if ("status", "499") in labels)


def test_a_client_that_leaves_its_stream_does_not_end_the_task(door: Door, server: Server, http: httpx.Client) -> None:
    gate = str(uuid.uuid4())
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        task_id = next(stream).data["task"]["id"]
        assert streams(http, server.url) == 1
    eventually(lambda: streams(http, server.url) == 0)
    door.task(gate, "release")
    assert door.until(task_id, "hold", "COMPLETED")["artifacts"]


def test_a_stream_is_not_disturbed_by_the_bad_requests_of_others(door: Door, server: Server) -> None:
    gate = str(uuid.uuid4())
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        first = next(stream)
        with httpx.Client(timeout=60) as http:
            for another in (Rest(http, server.url), Rpc(http, server.url)):
                for body in (b"{", b"[]", b"\xff", b"x" * (MAX_BODY + 1)):
                    another.problem(http.send(another.raw(body, "hold")))
            Rest(http, server.url).task(gate, "release")
        rest_of_it = list(stream)
    assert [frame.id for frame in (first, *rest_of_it)] == list(range(1, 10))
    assert rest_of_it[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


# Anything


FEW = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("message", "messageId", "role", "parts", "text", "raw", "url", "data", "metadata", "taskId", "contextId"),
        *("configuration", "historyLength", "tenant", "id", "jsonrpc", "method", "params", "message_id", "pageSize"),
    ]
)
VALUES = st.sampled_from(["ROLE_USER", "2.0", "SendMessage", "ListTasks", "GetTask", "", "hello", 0, -1, 2**70, 1.5])
ALMOST = st.recursive(
    VALUES | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


def _answered(door: Door, body: bytes) -> None:
    response = door.http.send(door.raw(body))
    assert response.status_code < 500, response.text
    assert "INTERNAL" not in response.text
    assert isinstance(response.json(), dict)


@FEW
@given(body=st.binary(max_size=200))
@example(body=b'{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"\\ud800"}]}}')
def test_any_bytes_get_an_answer_below_500(door: Door, body: bytes) -> None:
    _answered(door, body)


@FEW
@given(value=JSON | ALMOST)
def test_any_json_gets_an_answer_below_500(door: Door, value: Any) -> None:
    _answered(door, json.dumps(value).encode())


@FEW
@given(params=ALMOST, method=st.sampled_from(["SendMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"]))
def test_any_params_get_an_answer_below_500(rpc: Rpc, params: Any, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    _answered(rpc, json.dumps(body).encode())


@FEW
@given(
    path=st.text(st.characters(codec="utf-8"), max_size=30),
    query=st.dictionaries(NAMES, st.text(max_size=20)),
    at=NAMES,
)
def test_any_path_and_query_get_an_answer_below_500(
    server: Server, http: httpx.Client, path: str, query: dict[str, str], at: str
) -> None:
    for place in (path, f"agents/hello/{path}", f"agents/{path}", "agents/hello/tasks", f"agents/hello/{at}"):
        response = http.get(f"{server.url}/{quote(place)}", params=query, headers=VERSION)
        assert response.status_code < 500, response.text
