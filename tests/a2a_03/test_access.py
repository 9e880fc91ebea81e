"""Access in A2A 0.3: credentials, the tasks of others, quotas, streams that end with their credential."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from roost.doors.a2a_03.door import TABLE
from roost.protocol.operations import BY_OLD_RPC as METHODS
from tests.a2a_03.wire import Old, problem, proto_sending, sending
from tests.access.people import AGENTS, OPERATOR, People, Person, bearer
from tests.doors.wire import Rest
from tests.grpc.wire import GRPC, place_of, refusal
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

HOOK = "http://127.0.0.1:9/hook"
QUOTAS = "principal:roost:slow.rate=2"
PUSHES = {
    "tasks/pushNotificationConfig/set": {"taskId": "", "pushNotificationConfig": {"url": HOOK}},
    "tasks/pushNotificationConfig/delete": {"id": "", "pushNotificationConfigId": "hook"},
    "tasks/pushNotificationConfig/get": {"id": "", "pushNotificationConfigId": "hook"},
}


class World:
    def __init__(self, server: Server, people: People) -> None:
        self.server = server
        self.people = people
        self.owner = people.new("agent:desk", name="owner")
        self.colleague = people.new("agent:*", name="colleague")
        self.elsewhere = people.new("agent:other", name="elsewhere")
        self.nobody = people.with_headers({})
        self.wrong = people.with_headers(bearer("roost_" + "x" * 43))
        self.task: str = self.old(self.owner).task(agent="desk")["id"]

    def old(self, person: Person) -> Old:
        return Old(person.http, self.server.url)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    env = {**OPERATOR, "AGENT_GATES": str(tmp_path_factory.mktemp("gates"))}
    args = ("--drain-s", "0", "--auth-failures", "100000", "--push-allow-hosts", "127.0.0.1", "--quotas", QUOTAS, *GRPC)
    with running(AGENTS, args=args, env=env) as server, People(server) as people:
        found = World(server, people)
        yield found
        after = found.old(found.owner).ok("tasks/get", {"id": found.task}, "desk")
        assert after["status"]["state"] == "input-required", "somebody else has touched the task"


def params_of(method: str, task: str) -> dict[str, Any]:
    if method.startswith("message/"):
        return sending()
    if method.startswith("agent/"):
        return {}
    found = PUSHES.get(method, {"id": ""})
    return {name: task if value == "" else value for name, value in found.items()}


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_asks_who_calls(world: World, method: str) -> None:
    params = params_of(method, world.task)
    for person, reason in (
        (world.nobody, "UNAUTHENTICATED"),
        (world.wrong, "UNAUTHENTICATED"),
        (world.elsewhere, "FORBIDDEN"),
    ):
        assert problem(world.old(person).post(method, params, "desk")).reason == reason
    if method.startswith("tasks/"):
        assert problem(world.old(world.colleague).post(method, params, "desk")).reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize("route", TABLE.endpoints, ids=lambda route: f"{route.method} {route.template}")
def test_every_path_asks_who_calls(world: World, route: Any) -> None:
    path = re.sub(r"\{\w+\}$", "hook", route.template) if "{taskId}" in route.template else route.template
    path = path.replace("{taskId}", world.task).replace("{id}", world.task).removeprefix("/v1/")
    body: dict[str, Any] = {}
    if route.method == "POST":
        body["json"] = {"pushNotificationConfig": {"url": HOOK}} if "push" in path else proto_sending()
    for person, reason in (
        (world.nobody, "UNAUTHENTICATED"),
        (world.wrong, "UNAUTHENTICATED"),
        (world.elsewhere, "FORBIDDEN"),
    ):
        assert problem(world.old(person).rest(route.method, path, "desk", **body)).reason == reason
    if world.task in path:
        answer = world.old(world.colleague).rest(route.method, path, "desk", **body)
        assert problem(answer).reason == "TASK_NOT_FOUND"


def test_a_list_has_only_the_callers_own(world: World) -> None:
    assert world.old(world.colleague).rest_ok("GET", "tasks", "desk") == []
    assert world.task in [task["id"] for task in world.old(world.owner).rest_ok("GET", "tasks", "desk")]


def test_what_is_not_there_is_told_only_to_those_who_are_known(world: World) -> None:
    for path in ("nowhere", "tasks/x"):
        assert problem(world.old(world.nobody).rest("GET", path, "nobody")).reason == "UNAUTHENTICATED"
        assert problem(world.old(world.owner).rest("GET", path, "nobody")).reason == "AGENT_NOT_FOUND"
    assert problem(world.old(world.nobody).rest("GET", "nowhere", "desk")).reason == "UNAUTHENTICATED"


async def test_grpc_asks_who_calls_too(world: World) -> None:
    desk, task = ("a2a-agent", "desk"), pb.GetTaskRequest(name=f"tasks/{world.task}")

    def metadata(person: Person) -> tuple[tuple[str, str], ...]:
        secret = person.http.headers.get("authorization")
        return (desk,) if secret is None else (desk, ("authorization", secret))

    async with grpc.aio.insecure_channel(place_of(world.server)) as channel:
        stub = A2AServiceStub(channel)
        found = await stub.GetTask(task, metadata=metadata(world.owner), timeout=PATIENCE_S)
        assert found.status.state == pb.TASK_STATE_INPUT_REQUIRED
        card = await stub.GetAgentCard(pb.GetAgentCardRequest(), metadata=metadata(world.owner), timeout=PATIENCE_S)
        assert card.description == "The desk, to owner."
        for person, reason in (
            (world.nobody, "UNAUTHENTICATED"),
            (world.wrong, "UNAUTHENTICATED"),
            (world.elsewhere, "FORBIDDEN"),
            (world.colleague, "TASK_NOT_FOUND"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetTask(task, metadata=metadata(person), timeout=PATIENCE_S)
            assert refusal(caught.value).reason == reason
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(task, metadata=metadata(world.owner)[1:], timeout=PATIENCE_S)
        assert refusal(caught.value).fields == ["a2a-agent"], "there is no root and more than one agent"


def test_a_quota_holds_for_both_versions_together(world: World) -> None:
    slow = world.people.new("agent:other", name="slow")
    old, new = world.old(slow), Rest(slow.http, world.server.url)
    old.task(agent="other")
    new.task(agent="other")
    for ask in (lambda: old.post("message/send", sending(), "other"), lambda: old.rest("GET", "tasks", "other")):
        tried = (ask() for _ in range(10))  # the window slides: where a minute ends, one more may go through
        answer = next(answer for answer in tried if answer.status_code != 200)
        assert problem(answer).reason == "TOO_MANY_REQUESTS"
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("form", ["rpc", "rest"])
def test_a_stream_ends_with_its_credential_and_says_so(world: World, form: str) -> None:
    made = world.people.operator.make("agent:turns", subject=f"reader-{form}")
    person = world.people.with_headers(bearer(made["token"]))
    base = f"{world.server.url}/agents/turns"
    body: Any = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": sending("never")}
    url, content = (base, body) if form == "rpc" else (f"{base}/v1/message:stream", proto_sending("never"))
    lines = []
    with person.http.stream("POST", url, json=content) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if "begun" in line:
                world.people.operator.admin("DELETE", f"tokens/{made['id']}")
    (last,) = [line for line in lines[-3:] if line.startswith("data: ")]
    assert "UNAUTHENTICATED" in last
    assert ('"error"' in last) if form == "rpc" else ("event: error" in lines)
    assert not any("ended" in line for line in lines[:-3])
    another = world.people.new("agent:turns", subject=f"reader-{form}")
    (task,) = world.old(another).rest_ok("GET", "tasks", "turns")
    assert task["status"]["state"] == "TASK_STATE_WORKING"
    world.old(another).ok("tasks/cancel", {"id": task["id"]}, "turns")


def test_a_credential_in_the_query_is_refused(world: World) -> None:
    answer = httpx.get(f"{world.server.url}/agents/desk/v1/tasks?access_token=x", timeout=PATIENCE_S)
    assert problem(answer).field == "access_token"
