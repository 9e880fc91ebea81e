"""`@a2a-js/sdk` 0.3, which knows nothing of 1.0: every operation of its client over both of HTTP's transports."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.conftest import SECRET
from tests.clients.javascript import JavaScript, Refused, Remote, javascript
from tests.doors.wire import Rest, text_of
from tests.processes import Server

Agent = Callable[[str], Remote]
UNKNOWN = str(uuid.uuid4())
HOOK = "https://example.com/hook"


@pytest.fixture(scope="module")
def node() -> Iterator[JavaScript]:
    with javascript("client_03.mjs") as found:
        yield found


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def agent(node: JavaScript, server: Server, request: pytest.FixtureRequest) -> Agent:
    card = f"{server.url}/agents/%s/.well-known/agent.json"
    return lambda name: Remote(node, card % name, request.param, SECRET)


def sending(text: str = "hello", *, blocking: bool = True, **more: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    message = {"kind": "message", "messageId": str(uuid.uuid4()), "role": "user", "parts": parts, **more}
    return {"message": message, "configuration": {"blocking": blocking}}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["status"]["state"] if event["kind"] == "status-update" else event["kind"] for event in events]


def test_send(agent: Agent) -> None:
    task = agent("words").call("sendMessage", sending("a b c"))
    assert (task["kind"], task["status"]["state"], text_of(task)) == ("task", "completed", "a b c ")
    reply = agent("direct").call("sendMessage", sending("hi"))
    assert (reply["kind"], reply["role"], reply["parts"][0]["text"]) == ("message", "agent", "You said hi")


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_the_card_is_found_where_clients_of_0_3_look_for_it(node: JavaScript, server: Server, transport: str) -> None:
    """That client reads the path of the card of 1.0, and sends no version there."""
    words = Remote(node, f"{server.url}/agents/words/.well-known/agent-card.json", transport, SECRET)
    task = words.call("sendMessage", sending("a b c"))
    assert (task["kind"], text_of(task)) == ("task", "a b c ")


def test_a_question_is_answered(agent: Agent, rest: Rest) -> None:
    trip = agent("trip")
    asked = trip.call("sendMessage", sending())
    assert asked["status"]["state"] == "input-required"
    assert asked["status"]["message"]["parts"][0]["text"] == "Which city?"
    named = {"taskId": asked["id"], "contextId": asked["contextId"]}
    answered = trip.call("sendMessage", sending("Rome", **named))
    assert (answered["id"], text_of(answered)) == (asked["id"], "Greetings from Rome!")
    assert rest.get(asked["id"], "trip")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_stream(agent: Agent) -> None:
    stream = agent("words").open("sendMessageStream", sending("a b c"))
    assert (stream.opening["kind"], stream.opening["status"]["state"]) == ("task", "submitted")
    events = stream.rest()
    assert kinds(events) == ["working", *["artifact-update"] * 3, "completed"]
    assert [event["artifact"]["parts"][0]["text"] for event in events[1:-1]] == ["a ", "b ", "c "]
    assert [event["final"] for event in events if event["kind"] == "status-update"] == [False, True]


def test_a_stream_is_left_and_taken_up_again(agent: Agent, rest: Rest) -> None:
    hold, gate = agent("hold"), str(uuid.uuid4())
    first = hold.open("sendMessageStream", sending(gate))
    task = first.opening["id"]
    first.leave()
    rest.until(task, "hold", "WORKING")
    again = hold.open("resubscribeTask", {"id": task})
    assert again.opening["id"] == task
    rest.task(gate, "release")
    assert kinds(again.rest())[-1] == "completed"
    assert text_of(rest.get(task, "hold")) == "one two"


def test_what_1_0_begins_0_3_watches_and_cancels(agent: Agent, rest: Rest) -> None:
    hold = agent("hold")
    task = rest.begin(str(uuid.uuid4()), "hold")["id"]
    rest.until(task, "hold", "WORKING")
    watched = hold.open("resubscribeTask", {"id": task})
    assert hold.call("getTask", {"id": task})["status"]["state"] == "working"
    assert hold.call("cancelTask", {"id": task})["status"]["state"] == "canceled"
    assert kinds(watched.rest())[-1] == "canceled"
    assert rest.get(task, "hold")["status"]["state"] == "TASK_STATE_CANCELED"
    with pytest.raises(Refused, match="TaskNotCancelableError"):
        hold.call("cancelTask", {"id": task})


def test_push_configs(agent: Agent) -> None:
    trip = agent("trip")
    task = trip.call("sendMessage", sending())["id"]
    config = {"id": "one", "url": HOOK}
    made = trip.call("setTaskPushNotificationConfig", {"taskId": task, "pushNotificationConfig": config})
    assert (made["taskId"], made["pushNotificationConfig"]["url"]) == (task, HOOK)
    named = {"id": task, "pushNotificationConfigId": "one"}
    assert trip.call("getTaskPushNotificationConfig", named)["pushNotificationConfig"]["url"] == HOOK
    listed = trip.call("listTaskPushNotificationConfig", {"id": task})
    assert [found["pushNotificationConfig"]["id"] for found in listed] == ["one"]
    trip.call("deleteTaskPushNotificationConfig", named)
    assert trip.call("listTaskPushNotificationConfig", {"id": task}) == []


@pytest.mark.parametrize("method", ["getTask", "cancelTask"])
def test_errors_are_the_clients_own(agent: Agent, method: str) -> None:
    with pytest.raises(Refused) as caught:
        agent("words").call(method, {"id": UNKNOWN})
    assert caught.value.kind == "TaskNotFoundError"


def test_without_a_credential(agent: Agent) -> None:
    words = agent("words")
    words.headers = {}
    with pytest.raises(Refused, match="a credential is needed"):
        words.call("sendMessage", sending())
