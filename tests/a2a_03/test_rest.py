"""REST of A2A 0.3 below `/v1/`: the JSON of its protobuf messages."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from tests.a2a_03.wire import Old, message, problem, proto_sending, text_of, words
from tests.doors.wire import VERSION, Rest

HOOK = "http://127.0.0.1:9/hook"


def begun(old: Old, gate: str = "") -> str:
    body = proto_sending(gate or str(uuid.uuid4()), blocking=False)
    found: str = old.rest_ok("POST", "message:send", "hold", json=body)["task"]["id"]
    return found


@pytest.mark.parametrize("headers", [{}, {"A2A-Version": "0.3"}, {"A2A-Version": "0.3.0"}])
def test_a_message_is_answered_with_a_task(old: Old, headers: dict[str, str]) -> None:
    task = old.rest_ok("POST", "message:send", json=proto_sending("Ada"), headers=headers)["task"]
    assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_COMPLETED", "Hello, Ada!")
    assert task["history"][0]["content"] == [{"text": "Ada"}]
    assert old.rest_ok("GET", f"tasks/{task['id']}", headers=headers) == task
    assert old.rest_ok("GET", f"tasks/{task['id']}?historyLength=1") == task
    assert task["id"] in [found["id"] for found in old.rest_ok("GET", "tasks")]


def test_the_names_of_the_protobuf_fields_will_do(old: Old) -> None:
    """These are the bodies that a2a-sdk sends."""
    said = {"message_id": str(uuid.uuid4()), "role": "ROLE_USER", "content": [{"text": "Ada"}]}
    body = {"request": said, "configuration": {"blocking": True}}
    assert text_of(old.rest_ok("POST", "message:send", json=body)["task"]) == "Hello, Ada!"


def test_it_is_below_the_root_too(old: Old) -> None:
    task = begun(old)
    found = old.http.post(f"{old.base}/v1/tasks/{task}:cancel")
    assert found.json()["status"]["state"] == "TASK_STATE_CANCELLED"
    assert problem(old.http.get(f"{old.base}/v1/nowhere")).reason == "ROUTE_NOT_FOUND"


def test_a_stream_and_how_it_is_resumed(old: Old) -> None:
    with old.rest_stream("message:stream", "stream", proto_sending("a b c")) as frames:
        found = list(frames)
    assert [frame.id for frame in found] == list(range(1, len(found) + 1))
    assert [next(iter(frame.data)) for frame in found[:2]] == ["task", "statusUpdate"]
    assert (words(found), found[-1].data["statusUpdate"]["final"]) == ("a b c", True)
    task = found[0].data["task"]["id"]
    with old.rest_stream(f"tasks/{task}:subscribe", "stream", Last_Event_ID="2") as frames:
        first, *rest = list(frames)
    assert (first.id, first.data["task"]["id"]) == (None, task)
    assert rest == found[2:]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_task_is_followed(old: Old, new: Rest, method: str) -> None:
    gate = str(uuid.uuid4())
    task = begun(old, gate)
    url = f"{old.base}/agents/hold/v1/tasks/{task}:subscribe"
    with old.http.stream(method, url) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        assert f'"id":"{task}"' in next(lines)
        new.task(gate, "release")
        assert any('"final":true' in line for line in lines)


def test_files_are_base64_within_base64(old: Old) -> None:
    """The bytes field holds the text of 0.3's `bytes`, as in all transports of the SDK."""
    text = base64.b64encode(b"\x00\x01\xff").decode()
    wrapped = base64.b64encode(text.encode()).decode()
    content: list[dict[str, Any]] = [
        {"file": {"fileWithBytes": wrapped, "mimeType": "image/png", "name": "a"}},
        {"file": {"fileWithUri": "https://example.com/b"}},
        {"data": {"data": {"n": 5}}},
    ]
    task = old.rest_ok("POST", "message:send", "files", json=proto_sending(content=content))["task"]
    assert task["history"][0]["content"] == content
    assert task["artifacts"][0]["parts"] == content[:1]
    shown = task["artifacts"][1]["parts"][0]["data"]["data"]["parts"]
    assert (shown[0]["bytes"], shown[2]) == (3, {"data": {"n": 5}})


@pytest.mark.parametrize("form", ["config", "request"])
def test_webhooks_are_set_read_listed_and_deleted(old: Old, form: str) -> None:
    """The specification has the config as the body, a2a-sdk a request that holds it."""
    task = begun(old)
    path = f"tasks/{task}/pushNotificationConfigs"
    name = f"tasks/{task}/pushNotificationConfigs/mine"
    config = {"name": name, "pushNotificationConfig": {"id": "mine", "url": HOOK, "token": "t"}}
    body = config if form == "config" else {"parent": f"tasks/{task}", "configId": "mine", "config": config}
    assert old.rest_ok("POST", path, "hold", json=body) == config
    assert old.rest_ok("GET", f"{path}/mine", "hold") == config
    assert old.rest_ok("GET", path, "hold") == {"configs": [config]}
    assert old.rest_ok("DELETE", f"{path}/mine", "hold") == {}
    assert old.rest_ok("GET", path, "hold") == {}
    assert problem(old.rest("GET", f"{path}/mine", "hold")).reason == "TASK_NOT_FOUND"
    old.rest_ok("POST", f"tasks/{task}:cancel", "hold")


@pytest.mark.parametrize("form", ["body", "query", "name"])
def test_a_webhook_has_the_id_that_the_request_says(old: Old, form: str) -> None:
    path = f"tasks/{begun(old)}/pushNotificationConfigs"
    config: dict[str, Any] = {"pushNotificationConfig": {"url": HOOK}}
    if form == "name":
        config["name"] = f"{path}/mine"
    body = {"configId": "mine", "config": config} if form == "body" else config
    old.rest_ok("POST", path + ("?configId=mine" if form == "query" else ""), "hold", json=body)
    assert old.rest_ok("GET", f"{path}/mine", "hold")["name"] == f"{path}/mine"


def test_a_message_sent_again_is_answered_as_before(old: Old) -> None:
    body = proto_sending()
    first, again = (old.rest("POST", "message:send", json=body) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"


def test_other_paths_below_v1_are_not_its_own(old: Old) -> None:
    """With `A2A-Version: 1.0` these paths belong to agentic-sandbox's dialect, and one to OpenAI's door."""
    chat = {"model": "hello", "messages": [{"role": "user", "content": "Ada"}]}
    answer = old.rest("POST", "chat/completions", json=chat)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello, Ada!"
    task = old.rest_ok("POST", "message:send", json=proto_sending())["task"]["id"]
    found = old.rest("GET", f"tasks/{task}", headers=VERSION).json()
    assert "parts" in found["history"][0]
    assert "content" in old.rest_ok("GET", f"tasks/{task}")["history"][0]
    refused = old.rest("POST", "message:send", json={"message": message()}, headers=VERSION)
    assert refused.status_code == 404
    assert refused.json()["code"] == "route.not_found"
