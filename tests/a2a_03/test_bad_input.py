"""Invalid requests of 0.3 get an error in the form of their binding that names the field, and change nothing."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from tests.a2a_03.wire import Old, message, problem, proto_sending, sending
from tests.doors.serving import healthy
from tests.doors.wire import VERSION, Rest, Rpc
from tests.doors.wire import sending as new_sending

NESTED: Any = {}
for _ in range(60):
    NESTED = {"x": NESTED}

MARK = {"data_part_compat": True}


def with_part(part: Any) -> dict[str, Any]:
    return {"message": message(parts=[{"kind": "text", "text": "x"}, part])}


PARAMS: list[tuple[Any, str, str]] = [
    ([], "params", ""),
    (None, "params", ""),
    ({}, "message", "required"),
    ({"message": "hello"}, "message", ""),
    ({"message": message(role="ROLE_USER")}, "message.role", "`A2A-Version: 1.0`"),
    ({"message": message(role=1)}, "message.role", ""),
    ({"message": {"role": "user", "parts": []}}, "message.messageId", "required"),
    ({"message": message(messageId=7)}, "message.messageId", "string"),
    ({"message": message(parts="x")}, "message.parts", "list"),
    ({"message": message(parts=[])}, "message.parts", ""),
    (new_sending(), "message.parts[0].kind", "`A2A-Version: 1.0`"),
    (with_part({"text": "x"}), "message.parts[1].kind", "text, file or data"),
    (with_part({"kind": "video", "url": "https://x"}), "message.parts[1].kind", "text, file or data"),
    (with_part({"kind": ["text"], "text": "x"}), "message.parts[1].kind", ""),
    (with_part({"kind": "text", "text": 5}), "message.parts[1].text", "string"),
    (with_part({"kind": "text"}), "message.parts[1].text", "required"),
    (with_part({"kind": "data", "data": [1]}), "message.parts[1].data", ""),
    (with_part({"kind": "file", "file": {"bytes": 3}}), "message.parts[1].file.bytes", "string"),
    (with_part({"kind": "file", "file": {"bytes": "?no base64?"}}), "message.parts[1].file.bytes", "base64"),
    (with_part({"kind": "file", "file": {"name": "a"}}), "message.parts[1].file.bytes", "required"),
    (with_part({"kind": "data", "data": {"n": 10**400}}), "message.parts[1].data.n", "too large"),
    (with_part({"kind": "data", "data": {"n": [{"m": 2**53 + 1}]}}), "message.parts[1].data.n[0].m", "2^53"),
    (with_part({"kind": "data", "data": {"a": 1}, "metadata": MARK}), "message.parts[1].data", "`value`"),
    (with_part({"kind": "data", "data": {"value": 1, "b": 2}, "metadata": MARK}), "message.parts[1].data", "`value`"),
    ({"message": message(metadata={"n": -(2**53) - 1})}, "message.metadata.n", "2^53"),
    (with_part({"kind": "data", "data": NESTED}), "params", "too deep"),
    ({"message": message(metadata=[1])}, "message.metadata", ""),
    ({"message": message(), "configuration": {"blocking": "perhaps"}}, "configuration.blocking", ""),
    ({"message": message(), "configuration": {"historyLength": "x"}}, "configuration.historyLength", ""),
    ({"message": message(), "configuration": {"historyLength": 2**40}}, "historyLength", ""),
    ({"message": message(), "configuration": {"historyLength": -1}}, "configuration.historyLength", ""),
    ({"message": message(contextId="c" * 300)}, "message.contextId", "longer"),
]


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
@pytest.mark.parametrize(("params", "field", "says"), PARAMS)
def test_a_message_that_is_none(old: Old, method: str, params: Any, field: str, says: str) -> None:
    with old.unchanged():
        found = problem(old.post(method, params))
    assert (found.reason, found.field) == ("INVALID_PARAMS", field)
    assert says in found.message


CALLS: list[tuple[str, Any, str]] = [
    ("tasks/get", {}, "id"),
    ("tasks/get", {"id": 5}, "id"),
    ("tasks/get", {"id": "x", "historyLength": -1}, "historyLength"),
    ("tasks/cancel", {"name": "tasks/x"}, "id"),
    ("tasks/cancel", {"id": "x", "metadata": "y"}, "metadata"),
    ("tasks/resubscribe", {"taskId": "x"}, "id"),
    ("tasks/pushNotificationConfig/set", {"taskId": "x"}, "pushNotificationConfig"),
    ("tasks/pushNotificationConfig/set", {"taskId": "x", "pushNotificationConfig": {}}, "pushNotificationConfig.url"),
    ("tasks/pushNotificationConfig/get", {"taskId": "x"}, "id"),
    ("tasks/pushNotificationConfig/delete", {"id": "x"}, "pushNotificationConfigId"),
]


@pytest.mark.parametrize(("method", "params", "field"), CALLS)
def test_a_call_that_is_none(old: Old, method: str, params: Any, field: str) -> None:
    with old.unchanged():
        found = problem(old.post(method, params))
    assert (found.reason, found.field) == ("INVALID_PARAMS", field), found


ENVELOPES: list[tuple[bytes, str, str]] = [
    (b"", "INVALID_JSON", ""),
    (b"{", "INVALID_JSON", ""),
    (b'{"a":NaN}', "INVALID_JSON", ""),
    (b"[]", "INVALID_REQUEST", ""),
    (b'{"jsonrpc":"1.0","id":1,"method":"message/send"}', "INVALID_REQUEST", "jsonrpc"),
    (b'{"jsonrpc":"2.0","id":{},"method":"message/send"}', "INVALID_REQUEST", "id"),
    (b'{"jsonrpc":"2.0","id":1}', "INVALID_REQUEST", "method"),
    (b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"a":"\\ud800"}}', "INVALID_JSON", ""),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":' + b"[" * 200 + b"]" * 200 + b"}",
        "INVALID_PARAMS",
        "",
    ),
]


@pytest.mark.parametrize(("body", "reason", "field"), ENVELOPES, ids=range(len(ENVELOPES)))
def test_a_body_that_is_no_request(old: Old, body: bytes, reason: str, field: str) -> None:
    with old.unchanged():
        url = f"{old.base}/agents/hello"
        found = problem(old.http.post(url, content=body, headers={"Content-Type": "application/json"}))
    assert found.reason == reason
    assert not field or found.field == field


@pytest.mark.parametrize("method", ["SendMessage", "GetTask", "ListTasks"])
def test_a_method_of_1_0_says_which_header_is_missing(old: Old, method: str) -> None:
    with old.unchanged():
        found = problem(old.post(method, new_sending()))
    assert found.reason == "METHOD_NOT_FOUND"
    assert "`A2A-Version: 1.0`" in found.message


@pytest.mark.parametrize("method", ["message/send", "tasks/get"])
def test_a_method_of_0_3_in_1_0_says_so(old: Old, method: str) -> None:
    with old.unchanged():
        answer = old.post(method, sending(), headers=VERSION)
    found = Rpc.problem(answer)
    assert found.reason == "METHOD_NOT_FOUND"
    assert "one of 0.3" in found.message


@pytest.mark.parametrize("method", ["tasks/list", "message/sendSubscribe", "", "tasks/get "])
def test_an_unknown_method_is_refused_with_those_that_there_are(old: Old, method: str) -> None:
    found = problem(old.post(method, {}))
    assert found.reason == "METHOD_NOT_FOUND"
    assert "tasks/resubscribe" in found.message


@pytest.mark.parametrize("version", ["99.0", "0.2", "0.30", "1", "x"])
def test_another_version_is_refused(old: Old, version: str) -> None:
    headers = {"A2A-Version": version}
    with old.unchanged():
        for answer in (
            old.post("message/send", sending(), headers=headers),
            old.rest("POST", "message:send", json=proto_sending(), headers=headers),
        ):
            found = problem(answer)
            assert (found.reason, version in found.message) == ("VERSION_NOT_SUPPORTED", True)
            assert "0.3, 1.0" in answer.text


def test_a_body_of_0_3_in_1_0_names_the_field(new: Rest, old: Old) -> None:
    with old.unchanged():
        found = new.refused("SendMessage", sending())
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.role"])


REST_BODIES: list[tuple[Any, str, str]] = [
    ({}, "message", ""),
    ({"message": "x"}, "message", ""),
    (new_sending(), "message.parts", "`content`"),
    ({"message": message()}, "message.parts", "`A2A-Version: 1.0`"),
    (proto_sending(role="user"), "message.role", ""),
    (proto_sending(role="ROLE_UNSPECIFIED"), "message.role", "ROLE_USER"),
    (proto_sending(role=7), "message.role", "ROLE_USER"),
    (proto_sending(role="7"), "message.role", "ROLE_USER"),
    (proto_sending(content=[]), "message.parts", ""),
    (proto_sending(content={"text": "x"}), "message.content", ""),
    (proto_sending(content=[{"text": 5}]), "message.content.text", ""),
    (proto_sending(content=[{"kind": "text"}]), "message.content[0]", "text, file or data"),
    (proto_sending(content=[{"raw": "AAEC"}]), "message.content[0]", "text, file or data"),
    (proto_sending(content=[{"data": {"n": 1}}]), "message.content[0].data.data", ""),
    (proto_sending(content=[{"file": {}}]), "message.content[0].file", ""),
    (proto_sending(content=[{"file": {"fileWithBytes": "???"}}]), "message.content[0].file.fileWithBytes", "base64"),
    (proto_sending(content=[{"file": {"fileWithBytes": "/////w=="}}]), "message.content[0].file.fileWithBytes", ""),
    (proto_sending(content=[{"file": {"fileWithBytes": "Pz8/"}}]), "message.parts[0].file.bytes", "base64"),
    (proto_sending(content=[{"data": {"data": {"n": 2**53 + 1}}}]), "message.content[0].data.data.n", "2^53"),
    (proto_sending(content=[{"data": {"data": {"a": 1}}, "metadata": MARK}]), "message.parts[0].data", "`value`"),
    (proto_sending(metadata=[]), "message.metadata", ""),
    ({**proto_sending(), "configuration": {"historyLength": "x"}}, "configuration.historyLength", ""),
    ({**proto_sending(), "configuration": []}, "configuration", ""),
]


@pytest.mark.parametrize("path", ["message:send", "message:stream"])
@pytest.mark.parametrize(("body", "field", "says"), REST_BODIES, ids=range(len(REST_BODIES)))
def test_a_message_over_rest_that_is_none(old: Old, path: str, body: Any, field: str, says: str) -> None:
    with old.unchanged():
        found = problem(old.rest("POST", path, json=body))
    assert found.reason == "INVALID_PARAMS"
    assert found.field == field or not field, found
    assert says in found.message


@pytest.mark.parametrize(
    "path", ["message:send", "message:stream", "tasks/x:cancel", "tasks/x/pushNotificationConfigs"]
)
@pytest.mark.parametrize(
    ("body", "reason"), [(b"{", "INVALID_JSON"), (b"[]", "INVALID_PARAMS"), (b"\xff", "INVALID_JSON")]
)
def test_a_body_over_rest_that_is_no_object(old: Old, path: str, body: bytes, reason: str) -> None:
    with old.unchanged():
        answer = old.rest("POST", path, content=body, headers={"Content-Type": "application/json"})
        assert problem(answer).reason == reason


def test_a_webhook_over_rest_that_is_none(old: Old) -> None:
    for body in ({}, {"config": {}}, {"config": 5}, {"pushNotificationConfig": {"url": 5}}, {"config": {"name": "x"}}):
        found = problem(old.rest("POST", "tasks/x/pushNotificationConfigs", json=body))
        assert found.reason == "INVALID_PARAMS"
        assert found.field


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"configId": "b"}, "configId"),
        ({"parent": "tasks/y"}, "parent"),
        ({"config": {"name": "tasks/y/pushNotificationConfigs/a"}}, "config.name"),
        ({"config": {"name": "tasks/x/pushNotificationConfigs/b"}}, "configId"),
    ],
)
def test_a_webhook_over_rest_that_is_said_to_be_two(old: Old, more: Any, field: str) -> None:
    config = {"pushNotificationConfig": {"id": "a", "url": "http://127.0.0.1:9/hook"}, **more.get("config", {})}
    path = "tasks/x/pushNotificationConfigs"
    found = problem(old.rest("POST", path, json={**more, "config": config}))
    assert (found.reason, found.field) == ("INVALID_PARAMS", field)
    found = problem(old.rest("POST", f"{path}?configId=c", json={"configId": "a", "config": config}))
    assert (found.reason, found.field) == ("INVALID_PARAMS", "configId")


@pytest.mark.parametrize("length", ["x", "-1", "99999999999", "4294967296"])
def test_a_history_length_that_is_none(old: Old, length: str) -> None:
    found = problem(old.rest("GET", f"tasks/x?historyLength={length}"))
    assert (found.reason, found.field) == ("INVALID_PARAMS", "historyLength")


def test_what_is_not_json_is_refused(old: Old) -> None:
    headers = {"Content-Type": "text/plain"}
    with old.unchanged():
        for url in (f"{old.base}/agents/hello", f"{old.base}/agents/hello/v1/message:send"):
            found = problem(old.http.post(url, content=b"{}", headers=headers))
            assert (found.reason, found.field) == ("CONTENT_TYPE_NOT_SUPPORTED", "Content-Type")


def test_a_task_that_is_not_there_or_is_over(old: Old) -> None:
    unknown = {"id": str(uuid.uuid4())}
    over = {"id": old.task()["id"]}
    with old.unchanged():
        for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/pushNotificationConfig/list"):
            assert problem(old.post(method, unknown)).reason == "TASK_NOT_FOUND"
        assert problem(old.post("tasks/cancel", over)).reason == "TASK_NOT_CANCELABLE"
        assert problem(old.post("tasks/resubscribe", over)).reason == "UNSUPPORTED_OPERATION"
        assert problem(old.post("message/send", sending(taskId=unknown["id"]))).reason == "TASK_NOT_FOUND"
        assert problem(old.post("message/send", sending(taskId=over["id"]))).reason == "UNSUPPORTED_OPERATION"
        for method, path in (("GET", ""), ("POST", ":cancel"), ("GET", ":subscribe"), ("POST", ":subscribe")):
            assert problem(old.rest(method, f"tasks/{unknown['id']}{path}")).reason == "TASK_NOT_FOUND"
        assert problem(old.rest("POST", f"tasks/{over['id']}:cancel")).reason == "TASK_NOT_CANCELABLE"
        assert problem(old.rest("POST", f"tasks/{over['id']}:subscribe")).reason == "UNSUPPORTED_OPERATION"


def test_an_agent_or_a_path_that_is_not_there(old: Old) -> None:
    assert problem(old.post("tasks/get", {"id": "x"}, "nobody")).reason == "AGENT_NOT_FOUND"
    assert problem(old.rest("GET", "tasks/x", "nobody")).reason == "AGENT_NOT_FOUND"
    assert problem(old.rest("GET", "nowhere")).reason == "ROUTE_NOT_FOUND"
    refused = old.rest("PUT", "tasks/x")
    assert (problem(refused).reason, refused.headers["allow"]) == ("METHOD_NOT_ALLOWED", "GET")


@pytest.mark.parametrize("last", ["x", "-1", "99"])
def test_a_stream_is_resumed_only_where_it_was(old: Old, last: str) -> None:
    task = old.task()["id"]
    headers = {"Last-Event-ID": last}
    assert problem(old.post("tasks/resubscribe", {"id": task}, headers=headers)).field == "Last-Event-ID"
    assert problem(old.rest("GET", f"tasks/{task}:subscribe", headers=headers)).field == "Last-Event-ID"
    with old.unchanged():
        assert problem(old.post("message/stream", sending(), headers=headers)).field == "Last-Event-ID"
        answer = old.rest("POST", "message:stream", json=proto_sending(), headers=headers)
        assert problem(answer).field == "Last-Event-ID"


def test_a_body_that_is_too_large(http: httpx.Client) -> None:
    with healthy(args=("--max-body", "2000")) as host:
        old = Old(http, host.url)
        with old.unchanged():
            for answer in (
                old.post("message/send", sending("x" * 3000)),
                old.rest("POST", "message:send", json=proto_sending("x" * 3000)),
            ):
                assert problem(answer).reason == "PAYLOAD_TOO_LARGE"
        old.task("x" * 100)
