"""`@a2a-js/sdk`, from a card's URL: every operation over each of its transports, and errors as its own classes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.clients.agents import EXTENSION
from tests.clients.conftest import SECRET
from tests.clients.javascript import JavaScript, Refused, Remote, javascript
from tests.doors.wire import Rest, kind_of, message, sending, text_of
from tests.processes import Server

Agent = Callable[[str], Remote]
UNKNOWN = str(uuid.uuid4())
IMAGE = {"raw": "AAAA", "mediaType": "image/png"}
HOOK = "https://example.com/hook"


@pytest.fixture(scope="module")
def node() -> Iterator[JavaScript]:
    with javascript("client.mjs") as found:
        yield found


@pytest.fixture(params=["JSONRPC", "HTTP+JSON", "GRPC"])
def agent(node: JavaScript, server: Server, request: pytest.FixtureRequest) -> Agent:
    card = f"{server.url}/agents/%s/.well-known/agent-card.json"
    return lambda name: Remote(node, card % name, request.param, SECRET)


def begun(remote: Remote, text: str) -> str:
    """The id of a task that goes on."""
    sent = remote.call("sendMessage", sending(text, configuration={"returnImmediately": True}))
    found: str = sent["task"]["id"]
    return found


def test_the_card_leads_to_the_transport(agent: Agent, request: pytest.FixtureRequest) -> None:
    assert agent("words").protocol() == [request.node.callspec.params["agent"], "1.0"]


def test_send(agent: Agent) -> None:
    task = agent("words").call("sendMessage", sending("a b c"))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == "a b c "
    reply = agent("direct").call("sendMessage", sending("hi"))["message"]
    assert reply["parts"][0]["text"] == "You said hi"


def test_a_question_is_answered(agent: Agent, rest: Rest) -> None:
    trip = agent("trip")
    asked = trip.call("sendMessage", sending("hello"))["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert asked["status"]["message"]["parts"][0]["text"] == "Which city?"
    named = {"taskId": asked["id"], "contextId": asked["contextId"]}
    answered = trip.call("sendMessage", sending("Rome", **named))["task"]
    assert (answered["id"], text_of(answered)) == (asked["id"], "Greetings from Rome!")
    assert rest.get(asked["id"], "trip")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_stream(agent: Agent) -> None:
    stream = agent("words").open("sendMessageStream", sending("a b c"))
    events = stream.rest()
    assert stream.opening["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert [kind_of(event) for event in events] == ["WORKING", *["artifactUpdate"] * 3, "COMPLETED"]
    pieces = [event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in events[1:-1]]
    assert pieces == ["a ", "b ", "c "]


def test_a_stream_is_left_and_taken_up_again(agent: Agent, rest: Rest) -> None:
    hold, gate = agent("hold"), str(uuid.uuid4())
    first = hold.open("sendMessageStream", sending(gate))
    task = first.opening["task"]["id"]
    first.leave()
    rest.until(task, "hold", "WORKING")
    again = hold.open("resubscribeTask", {"id": task})
    assert again.opening["task"]["id"] == task
    rest.task(gate, "release")
    events = again.rest()
    assert kind_of(events[-1]) == "COMPLETED"
    assert text_of(rest.get(task, "hold")) == "one two"
    with pytest.raises(Refused, match="UnsupportedOperationError"):
        hold.open("resubscribeTask", {"id": task})


def test_a_stream_is_resumed_from_an_event(agent: Agent) -> None:
    """The host's own extension asks nothing of the client but a header."""
    words = agent("words")
    task = words.call("sendMessage", sending("a b"))["task"]["id"]
    stream = words.open("resubscribeTask", {"id": task}, Last_Event_ID="2")
    assert stream.opening["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert [kind_of(event) for event in stream.rest()] == ["artifactUpdate", "artifactUpdate", "COMPLETED"]


def test_get_list_and_cancel(agent: Agent, rest: Rest) -> None:
    hold = agent("hold")
    task = begun(hold, str(uuid.uuid4()))
    seen = hold.call("getTask", {"id": task})
    assert seen["id"] == task
    listed = hold.call("listTasks", {"contextId": seen["contextId"]})
    assert [found["id"] for found in listed["tasks"]] == [task]
    assert listed["totalSize"] == 1
    canceled = hold.call("cancelTask", {"id": task})
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert rest.get(task, "hold")["status"] == canceled["status"]
    with pytest.raises(Refused, match="TaskNotCancelableError"):
        hold.call("cancelTask", {"id": task})


def test_push_configs(agent: Agent) -> None:
    trip = agent("trip")
    task = trip.call("sendMessage", sending("hello"))["task"]["id"]
    made = trip.call("createTaskPushNotificationConfig", {"taskId": task, "id": "one", "url": HOOK, "token": "t"})
    assert (made["taskId"], made["id"], made["url"]) == (task, "one", HOOK)
    named = {"taskId": task, "id": "one"}
    assert trip.call("getTaskPushNotificationConfig", named) == made
    assert trip.call("listTaskPushNotificationConfig", {"taskId": task})["configs"] == [made]
    trip.call("deleteTaskPushNotificationConfig", named)
    assert trip.call("listTaskPushNotificationConfig", {"taskId": task}).get("configs", []) == []
    with pytest.raises(Refused):
        trip.call("getTaskPushNotificationConfig", named)


@pytest.mark.parametrize(
    ("method", "params", "kind"),
    [
        ("getTask", {"id": UNKNOWN}, "TaskNotFoundError"),
        ("cancelTask", {"id": UNKNOWN}, "TaskNotFoundError"),
        ("sendMessage", sending("hello", taskId=UNKNOWN), "TaskNotFoundError"),
        ("sendMessage", {"message": {**message(), "parts": [IMAGE]}}, "ContentTypeNotSupportedError"),
        ("listTasks", {"pageSize": 1000}, "RequestMalformedError"),
        ("sendMessage", {"message": {"messageId": "", "role": "ROLE_USER", "parts": []}}, "RequestMalformedError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_are_the_clients_own(agent: Agent, method: str, params: dict[str, object], kind: str) -> None:
    with pytest.raises(Refused) as caught:
        agent("words").call(method, params)
    assert caught.value.kind == kind
    assert caught.value.message


def test_an_extension_that_an_agent_requires(agent: Agent) -> None:
    strict = agent("strict")
    with pytest.raises(Refused, match="ExtensionSupportRequiredError"):
        strict.call("sendMessage", sending())
    assert text_of(strict.call("sendMessage", sending(), A2A_Extensions=EXTENSION)["task"]) == EXTENSION


def test_without_a_credential(agent: Agent) -> None:
    words = agent("words")
    words.headers = {}
    with pytest.raises(Refused, match="a credential is needed") as caught:
        words.call("sendMessage", sending())
    assert caught.value.kind != "TypeError"
