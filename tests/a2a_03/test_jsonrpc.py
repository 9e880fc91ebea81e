"""JSON-RPC of A2A 0.3: every method, its streams, and how a stream is resumed."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from tests.a2a_03.wire import Old, message, problem, sending, text_of, words
from tests.doors.agents import OPTIONAL, REQUIRED
from tests.doors.wire import Rest, streams
from tests.processes import Server
from tests.waiting import eventually

HOOK = "http://127.0.0.1:9/hook"


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0"])
def test_a_message_is_answered_with_a_task(old: Old, version: str | None) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    task = old.ok("message/send", {"message": message("Ada")}, headers=headers)
    assert (task["kind"], task["status"]["state"], text_of(task)) == ("task", "completed", "Hello, Ada!")
    (said,) = task["history"]
    assert (said["kind"], said["role"], said["parts"]) == ("message", "user", [{"kind": "text", "text": "Ada"}])
    assert old.ok("tasks/get", {"id": task["id"]}, headers=headers) == task


@pytest.mark.parametrize("place", ["/agents/hold", "/agents/hold/", "/"])
def test_it_is_at_the_paths_of_json_rpc(old: Old, place: str) -> None:
    task = old.task(str(uuid.uuid4()), "hold", blocking=False)
    body = {"jsonrpc": "2.0", "id": 3, "method": "tasks/cancel", "params": {"id": task["id"]}}
    assert old.http.post(old.base + place, json=body).json()["result"]["status"]["state"] == "canceled"


def test_the_version_may_be_in_the_query(old: Old) -> None:
    body = {"jsonrpc": "2.0", "id": 3, "method": "message/send", "params": sending()}
    answer = old.http.post(f"{old.base}/agents/hello?A2A-Version=0.3", json=body)
    assert answer.json()["result"]["kind"] == "task"


def test_a_stream_has_the_ids_of_the_entries_and_ends_with_the_final_event(old: Old, new: Rest) -> None:
    with old.stream("message/stream", sending("a b c"), "stream") as frames:
        found = list(frames)
    assert [frame.id for frame in found] == list(range(1, len(found) + 1))
    assert found[0].data["kind"] == "task"
    kinds = {frame.data["kind"] for frame in found[1:]}
    assert kinds == {"status-update", "artifact-update"}
    assert [frame.data["final"] for frame in found if frame.data["kind"] == "status-update"] == [False, True]
    assert words(found) == "a b c" == text_of(new.get(found[0].data["id"], "stream"))


@pytest.mark.parametrize("after", [1, 3])
def test_a_stream_is_resumed_after_any_event(old: Old, after: int) -> None:
    with old.stream("message/stream", sending("a b c"), "stream") as frames:
        whole = list(frames)
    task = whole[0].data["id"]
    with old.stream("tasks/resubscribe", {"id": task}, "stream", {"Last-Event-ID": str(after)}) as frames:
        first, *rest = list(frames)
    assert (first.id, first.data["kind"], first.data["id"]) == (None, "task", task)
    assert rest == whole[after:]


def test_a_subscription_begins_with_the_task_and_follows_it(old: Old, new: Rest) -> None:
    gate = str(uuid.uuid4())
    task = old.task(gate, "hold", blocking=False)
    with old.stream("tasks/resubscribe", {"id": task["id"]}, "hold") as frames:
        first = next(frames)
        assert (first.data["kind"], first.data["id"]) == ("task", task["id"])
        assert first.id is not None
        new.task(gate, "release")
        rest = list(frames)
    assert [frame.id for frame in rest] == list(range(first.id + 1, first.id + 1 + len(rest)))
    assert text_of(first.data) + words(rest) == "one two three four five six"
    assert rest[-1].data["final"] is True


def test_a_stream_that_ends_with_a_question_says_that_it_does(old: Old) -> None:
    """And a subscription, which goes on, does not."""
    with old.stream("message/stream", sending("x"), "interview") as frames:
        found = list(frames)
    last = found[-1].data
    assert (last["status"]["state"], last["final"]) == ("input-required", True)
    task = last["taskId"]
    answered = sending("Ada", taskId=task, contextId=last["contextId"], blocking=False)
    resumed = {"Last-Event-ID": str(found[-2].id)}
    with old.stream("tasks/resubscribe", {"id": task}, "interview", resumed) as frames:
        next(frames)
        asked = next(frames).data
        assert (asked["status"]["state"], asked["final"]) == ("input-required", False)
        assert old.ok("message/send", answered, "interview")["id"] == task
        assert next(frames).data["status"]["state"] in ("submitted", "working")
    old.ok("tasks/cancel", {"id": task}, "interview")


def test_states_are_in_its_words(old: Old) -> None:
    task = old.task("x", "reject")
    assert task["status"]["state"] == "rejected"
    assert task["status"]["message"]["parts"] == [{"kind": "text", "text": "Not my work"}]
    assert old.task("x", "login")["status"]["state"] == "auth-required"


def test_files_and_data_go_in_and_come_back(old: Old) -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    parts: list[dict[str, Any]] = [
        {"kind": "file", "file": {"bytes": raw, "mimeType": "image/png", "name": "a.png"}},
        {"kind": "file", "file": {"uri": "https://example.com/b.txt", "name": "b.txt"}},
        {"kind": "data", "data": {"n": 5, "f": 1.5, "none": None, "deep": [{"a": 2**40}]}},
        {"kind": "data", "data": {}},
    ]
    task = old.task("", "files", parts=parts)
    assert task["history"][0]["parts"] == parts
    file, described = task["artifacts"]
    assert file["parts"] == [parts[0]]
    ((data,),) = [artifact["parts"] for artifact in [described]]
    assert data["data"]["parts"][1:] == [
        {"url": "https://example.com/b.txt", "filename": "b.txt"},
        {"data": {"n": 5, "f": 1.5, "none": None, "deep": [{"a": 2**40}]}},
        {"data": {}},
    ]
    assert isinstance(data["data"]["parts"][2]["data"]["n"], int)


def test_metadata_extensions_and_output_modes_reach_the_agent(old: Old) -> None:
    params = {**sending(), "metadata": {"n": 1}}
    params["configuration"]["acceptedOutputModes"] = ["image/png", "application/json"]
    (artifact,) = old.ok("message/send", params, "echo")["artifacts"]
    (part,) = artifact["parts"]
    assert part["data"] == {"metadata": {"n": 1}, "extensions": [], "text": False, "png": True}


@pytest.mark.parametrize("header", ["X-A2A-Extensions", "A2A-Extensions"])
def test_extensions_are_asked_for_by_either_name(old: Old, header: str) -> None:
    answer = old.post("message/send", sending(), "strict", {header: f"{REQUIRED}, {OPTIONAL}"})
    assert text_of(answer.json()["result"]) == f"{REQUIRED},{OPTIONAL}"
    assert answer.headers["x-a2a-extensions"] == f"{REQUIRED}, {OPTIONAL}"
    assert problem(old.post("message/send", sending(), "strict")).reason == "EXTENSION_SUPPORT_REQUIRED"


def test_a_message_sent_again_is_answered_as_before(old: Old) -> None:
    params = sending()
    first, again = old.post("message/send", params), old.post("message/send", params)
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"


def test_without_blocking_the_answer_is_at_once(old: Old, new: Rest) -> None:
    task = old.task(str(uuid.uuid4()), "hold", blocking=False)
    assert task["status"]["state"] in ("submitted", "working")
    assert old.ok("tasks/cancel", {"id": task["id"], "metadata": {"why": None}}, "hold")["status"]["state"] == (
        "canceled"
    )
    assert new.get(task["id"], "hold")["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize(("length", "kept"), [(None, 2), (0, 2), (1, 1), (9, 2)])
def test_the_history_is_as_long_as_asked_for(old: Old, length: int | None, kept: int) -> None:
    """Nought is all of it: so 0.3's SDK has it."""
    task = old.task("x", "interview")
    old.ok("message/send", sending("Ada", taskId=task["id"], blocking=False), "interview")
    params = {"id": task["id"]} if length is None else {"id": task["id"], "historyLength": length}
    history = old.ok("tasks/get", params, "interview")["history"]
    assert [said["parts"][0]["text"] for said in history if said["role"] == "user"] == ["x", "Ada"][-kept:]
    old.ok("tasks/cancel", {"id": task["id"]}, "interview")


def test_webhooks_are_set_read_listed_and_deleted(old: Old) -> None:
    task = old.task(str(uuid.uuid4()), "hold", blocking=False)["id"]
    prefix = "tasks/pushNotificationConfig"
    assert problem(old.post(f"{prefix}/get", {"id": task}, "hold")).reason == "TASK_NOT_FOUND"
    config = {"id": "mine", "url": HOOK, "token": "t", "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
    made = old.ok(f"{prefix}/set", {"taskId": task, "pushNotificationConfig": config}, "hold")
    assert (made["taskId"], made["pushNotificationConfig"]["id"]) == (task, "mine")
    named = {"id": task, "pushNotificationConfigId": "mine"}
    read = old.ok(f"{prefix}/get", named, "hold")
    assert read["pushNotificationConfig"] == {**config, "authentication": {"schemes": ["Bearer"]}}
    assert old.ok(f"{prefix}/get", {"id": task}, "hold") == read, "the first, where none is named"
    assert old.ok(f"{prefix}/list", {"id": task}, "hold") == [read]
    assert old.ok(f"{prefix}/delete", named, "hold") is None
    assert old.ok(f"{prefix}/list", {"id": task}, "hold") == []
    old.ok("tasks/cancel", {"id": task}, "hold")


def test_a_client_that_goes_leaves_its_task_and_no_stream(old: Old, server: Server) -> None:
    before = streams(old.http, server.url)
    gate = str(uuid.uuid4())
    with old.stream("message/stream", sending(gate), "hold") as frames:
        task = next(frames).data["id"]
        assert streams(old.http, server.url) == before + 1
    eventually(lambda: streams(old.http, server.url) == before)
    assert old.ok("tasks/cancel", {"id": task}, "hold")["status"]["state"] == "canceled"
