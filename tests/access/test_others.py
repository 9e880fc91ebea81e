"""A task does not exist for other callers, nor do its context, its webhooks and the id of its message."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.settings import Settings
from roost.stores.memory import MemoryStore
from tests.access.inside import BASE, desk, inside, new_token
from tests.access.people import ADMIN_SECRET, AGENTS, IDEMPOTENCY, OPERATOR, People, Person, bearer, refusal
from tests.doors.wire import Door, Rest, Rpc, message, sending, text_of
from tests.processes import running

HOOK = "http://127.0.0.1:9/hook"

OF_A_TASK: dict[str, Any] = {
    "GetTask": lambda task: {"id": task},
    "CancelTask": lambda task: {"id": task},
    "SubscribeToTask": lambda task: {"id": task},
    "CreateTaskPushNotificationConfig": lambda task: {"taskId": task, "id": "hook", "url": HOOK},
    "GetTaskPushNotificationConfig": lambda task: {"taskId": task, "id": "hook"},
    "ListTaskPushNotificationConfigs": lambda task: {"taskId": task},
    "DeleteTaskPushNotificationConfig": lambda task: {"taskId": task, "id": "hook"},
    "SendMessage": lambda task: sending(taskId=task, messageId="the-same"),
    "SendStreamingMessage": lambda task: sending(taskId=task, messageId="the-same"),
}
"""The operations that name a task by its id."""


class Office:
    """A host, the owner of three tasks, and all who are not."""

    def __init__(self, people: People, gates: Path) -> None:
        self.people = people
        self.gates = gates
        self.owner = people.new(name="owner")
        self.colleague = people.new(name="colleague")
        self.stranger = people.new(name="stranger", tenants=["acme"])
        self.namesake = people.new(name="owner", tenants=["acme"])
        self.tasks = {
            "paused": self._task("desk"),
            "ended": self._task("desk"),
            "running": self.owner.rest.begin("never", "turns")["id"],
        }
        self.owner.rest.ok("CancelTask", {"id": self.tasks["ended"]}, "desk")
        for name, task in self.tasks.items():
            config = {"taskId": task, "id": "hook", "url": HOOK}
            self.owner.rest.ok("CreateTaskPushNotificationConfig", config, self.agent(name))

    def agent(self, task: str) -> str:
        return "turns" if task == "running" else "desk"

    def _task(self, agent: str) -> str:
        found: str = self.owner.rest.task(agent=agent)["id"]
        return found


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    gates, data = tmp_path_factory.mktemp("gates"), tmp_path_factory.mktemp("data")
    args = ("--drain-s", "0", "--push-allow-hosts", "127.0.0.1", "--push-attempts", "1")
    with (
        running(AGENTS, args=args, data=data, env={**OPERATOR, "AGENT_GATES": str(gates)}) as server,
        People(server) as people,
    ):
        office = Office(people, gates)
        before = {name: office.owner.rest.get(task, office.agent(name)) for name, task in office.tasks.items()}
        yield office
        for name, task in office.tasks.items():
            assert office.owner.rest.get(task, office.agent(name)) == before[name], name


def answer(door: Door, operation: str, task: str, agent: str) -> tuple[int, dict[str, str], str]:
    """All of it, with the task's id taken out."""
    response = door.call(operation, OF_A_TASK[operation](task), agent)
    assert refusal(response).reason == "TASK_NOT_FOUND"
    headers = {name: value for name, value in response.headers.items() if name != "date"}
    body = response.json()
    body.pop("id", None)  # of the JSON-RPC request
    return response.status_code, headers | {"content-length": ""}, str(body).replace(task, "<id>")


@pytest.mark.parametrize("who", ["colleague", "stranger", "namesake"])
@pytest.mark.parametrize("state", ["paused", "running", "ended"])
@pytest.mark.parametrize("operation", OF_A_TASK)
def test_anothers_task_is_answered_as_one_that_there_is_not(
    office: Office, operation: str, state: str, who: str
) -> None:
    task = office.tasks[state]
    unknown = task[:-4] + ("0000" if not task.endswith("0000") else "1111")
    person: Person = getattr(office, who)
    for door in person.doors:
        agent = office.agent(state)
        assert answer(door, operation, task, agent) == answer(door, operation, unknown, agent)


@pytest.mark.parametrize("operation", OF_A_TASK)
def test_ones_own_task_does_not_exist_at_another_agent(office: Office, operation: str) -> None:
    task = office.tasks["paused"]
    for door in office.owner.doors:
        assert answer(door, operation, task, "other") == answer(door, operation, str(uuid.uuid4()), "other")


def test_a_list_has_nothing_of_others(office: Office) -> None:
    task = office.owner.rest.get(office.tasks["paused"], "desk")
    for person in (office.colleague, office.stranger, office.namesake):
        for door in person.doors:
            for query in ({}, {"contextId": task["contextId"]}, {"status": "TASK_STATE_INPUT_REQUIRED"}):
                found = door.ok("ListTasks", query, "desk")
                assert (found["tasks"], found["totalSize"], found["nextPageToken"]) == ([], 0, "")
    assert office.owner.rest.ok("ListTasks", {"contextId": task["contextId"]}, "desk")["totalSize"] == 1


def test_a_place_in_ones_own_list_is_no_place_in_anothers(office: Office) -> None:
    first = office.owner.rest.ok("ListTasks", {"pageSize": 1}, "desk")
    assert first["nextPageToken"]
    found = office.colleague.rest.ok("ListTasks", {"pageToken": first["nextPageToken"]}, "desk")
    assert found["tasks"] == []


def test_who_has_two_tokens_has_the_same_tasks_with_both(office: Office) -> None:
    again = office.people.new("agent:desk", name="another token", subject="owner")
    assert again.rpc.get(office.tasks["paused"], "desk")["id"] == office.tasks["paused"]


# Contexts


def test_the_context_of_another_begins_ones_own(office: Office) -> None:
    context = office.owner.rest.get(office.tasks["paused"], "desk")["contextId"]
    mine = office.colleague.rest.task("mine", "teller", contextId=context)
    assert mine["contextId"] == context
    assert [part["text"] for said in mine["history"] for part in said["parts"]] == ["mine"]
    theirs = office.owner.rest.ok("ListTasks", {"contextId": context}, "teller")
    assert theirs["tasks"] == []


def test_nobody_waits_for_a_turn_of_anothers_in_a_context_of_the_same_name(office: Office) -> None:
    """The owner's own next turn does wait, behind the one that runs."""
    running = office.owner.rest.get(office.tasks["running"], "turns")
    (office.gates / "open").touch()
    behind = office.owner.rest.begin("open", "turns", contextId=running["contextId"])
    assert office.colleague.rest.task("open", "turns", contextId=running["contextId"])["status"]["state"] == (
        "TASK_STATE_COMPLETED"
    )
    assert office.owner.rest.get(behind["id"], "turns")["status"]["state"] == "TASK_STATE_SUBMITTED"
    office.owner.rest.ok("CancelTask", {"id": behind["id"]}, "turns")


def test_two_who_race_for_one_context_id_have_two_histories(office: Office) -> None:
    people = {"owner": office.owner, "colleague": office.colleague, "namesake": office.namesake}
    contexts = [str(uuid.uuid4()) for _ in range(8)]

    def talk(name: str, context: str) -> str:
        task = people[name].rest.task(f"from {name}", "teller", contextId=context)
        assert f"from {name}" in text_of(task)
        found: str = task["id"]
        return found

    with ThreadPoolExecutor(6) as pool:
        rounds = [(name, context, pool.submit(talk, name, context)) for context in contexts for name in people]
        sent = [(name, context, future.result()) for name, context, future in rounds]
    assert len({task for _, _, task in sent}) == len(sent)
    for name, person in people.items():
        for context in contexts:
            listed = person.rest.ok("ListTasks", {"contextId": context}, "teller")["tasks"]
            assert [task["id"] for task in listed] == [
                task for who, where, task in sent if (who, where) == (name, context)
            ]
            (said,) = listed[0]["history"]
            assert said["parts"] == [{"text": f"from {name}"}]


# Messages that come twice


@pytest.mark.parametrize("binding", [Rest, Rpc])
def test_the_message_id_of_another_is_not_taken(office: Office, binding: type[Door]) -> None:
    """Neither is the other's task told, nor is another content refused."""

    def send(person: Person, text: str) -> tuple[str, bool]:
        door = binding(person.http, person.base)
        response = door.call("SendMessage", {"message": said | {"parts": [{"text": text}]}}, "teller")
        assert response.status_code == 200, response.text
        return door.result(response)["task"]["id"], "idempotent-replayed" in response.headers

    said = message(messageId=str(uuid.uuid4()))
    first, replayed = send(office.owner, "the same")
    assert not replayed
    assert send(office.owner, "the same") == (first, True)
    for person, text in ((office.colleague, "the same"), (office.stranger, "the same"), (office.namesake, "another")):
        task, replayed = send(person, text)
        assert task != first
        assert not replayed


def test_the_message_id_of_another_is_not_taken_by_the_extension_either(office: Office) -> None:
    """An id is one's own, whoever else uses it."""
    headers = {"A2A-Extensions": IDEMPOTENCY}
    params = sending("hello", messageId=str(uuid.uuid4()))
    tasks = [
        person.rest.ok("SendMessage", params, "teller", headers)["task"]["id"]
        for person in (office.owner, office.owner, office.colleague)
    ]
    assert tasks[0] == tasks[1] != tasks[2]


# What the store is asked


CALLS: ContextVar[list[str] | None] = ContextVar("CALLS", default=None)
"""The calls of the store that the current request makes."""


class Counting(MemoryStore):
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        calls = CALLS.get()
        if calls is not None and inspect.iscoroutinefunction(found):
            calls.append(name)
        return found


@pytest.mark.parametrize("binding", [Rest, Rpc])
async def test_the_store_does_no_more_for_anothers_task_than_for_none(binding: type[Door]) -> None:
    async def asked(operation: str, task: str, headers: dict[str, str]) -> tuple[int, list[str]]:
        with httpx.Client() as plain:
            request = binding(plain, BASE).request(operation, OF_A_TASK[operation](task), "desk")
        request.headers.update(headers)
        found: list[str] = []
        mark = CALLS.set(found)
        try:
            answered = await http.request(
                request.method, request.url, content=request.content, headers=dict(request.headers)
            )
        finally:
            CALLS.reset(mark)
        return answered.status_code, found

    settings = Settings(memory=True, admin_token=ADMIN_SECRET, push_allow_hosts="127.0.0.1")
    async with inside(settings, desk(), store=Counting()) as http:
        owner = bearer((await new_token(http, subject="owner"))["token"])
        colleague = bearer((await new_token(http, subject="colleague"))["token"])
        sent = await http.post("/agents/desk/message:send", json=sending(), headers=owner)
        task: str = sent.json()["task"]["id"]
        for operation in OF_A_TASK:
            anothers = await asked(operation, task, colleague)
            nobodys = await asked(operation, str(uuid.uuid4()), colleague)
            assert anothers == nobodys == (404 if binding is Rest else 200, ["read_task"]), operation
        _, own = await asked("ListTaskPushNotificationConfigs", task, owner)
        assert "read_pushes" in own, "the store is not asked for more even by the owner: this test counts nothing"
