"""Streams over gRPC: they resume where they broke off, and whoever goes leaves nothing behind."""

from __future__ import annotations

import asyncio
import uuid

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb

from tests.doors.wire import streams
from tests.grpc.wire import NARROW, Caller, calling, kinds, message, rest, words
from tests.processes import Server
from tests.waiting import PATIENCE_S, until


async def begun(stream: object, pieces: int = 3) -> list[pb.StreamResponse]:
    """Read a stream until its artifact has this many pieces."""
    found = []
    while kinds(found).count("artifact_update") < pieces:
        found.append(await stream.read())  # type: ignore[attr-defined]
    return found


async def until_streams(server: Server, count: int) -> None:
    with httpx.Client(timeout=PATIENCE_S) as http:
        await until(lambda: streams(http, server.url) == count)


async def test_a_stream_says_where_it_begins_and_resumes_from_any_place(caller: Caller) -> None:
    """Each response is one event after the one before."""
    stream = caller.stream("stream", "a b c d e")
    first = int(dict(await stream.initial_metadata())["last-event-id"])
    whole = await rest(stream)
    task = whole[0].task.id
    last = first + len(whole) - 1
    for place in range(first, last + 1):
        resumed = caller.subscribe("stream", task, place)
        assert dict(await resumed.initial_metadata())["last-event-id"] == str(place)
        opening, *after = await rest(resumed)
        assert after == whole[place - first + 1 :]
        assert opening.task.id == task


async def test_a_stream_that_broke_off_goes_on_without_a_gap(caller: Caller, place: str) -> None:
    gate = str(uuid.uuid4())
    stream = caller.stream("hold", gate)
    first = int(dict(await stream.initial_metadata())["last-event-id"])
    seen = await begun(stream)
    stream.cancel()
    async with calling(place) as again:
        resumed = again.subscribe("hold", seen[0].task.id, first + len(seen) - 1)
        await resumed.read()
        await again.send("release", gate)
        assert words(seen + await rest(resumed)) == "one two three four five six"


async def test_a_terminal_task_has_nothing_to_subscribe_to(caller: Caller) -> None:
    task = await caller.send("hello")
    refused = await caller.refused("SubscribeToTask", pb.SubscribeToTaskRequest(tenant="hello", id=task.id))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UNSUPPORTED_OPERATION")


async def test_a_stream_ends_at_a_question_and_a_subscription_does_not(caller: Caller) -> None:
    asked = await rest(caller.stream("ask", "hi"))
    assert asked[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
    task = asked[0].task.id
    watching = caller.subscribe("ask", task)
    await watching.read()
    await caller.send("ask", "Ada", task_id=task)
    assert (await rest(watching))[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_client_that_goes_leaves_its_task_and_no_follower(server: Server, place: str, how: str) -> None:
    gate = str(uuid.uuid4())
    await until_streams(server, 0)
    async with calling(place) as leaver:
        stream = leaver.stream("hold", gate)
        task = (await begun(stream))[0].task.id
        await until_streams(server, 1)
        if how == "cancel":
            stream.cancel()
            await until_streams(server, 0)
    await until_streams(server, 0)
    async with calling(place) as caller:
        assert (await caller.task("hold", task)).status.state == pb.TASK_STATE_WORKING
        watching = caller.subscribe("hold", task)
        await watching.read()
        await caller.send("release", gate)
        assert (await rest(watching))[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_client_that_goes_while_it_is_written_to_is_no_failure(
    server: Server, place: str, caller: Caller, how: str
) -> None:
    """The fixture checks that the log has no traceback when the server stops."""
    await until_streams(server, 0)
    async with calling(place, options=NARROW) as leaver:
        stream = leaver.stream("flood", "200 4096")
        task = (await stream.read()).task.id
        async with asyncio.timeout(PATIENCE_S):
            while (await caller.task("flood", task)).status.state != pb.TASK_STATE_COMPLETED:
                pass
        await until_streams(server, 1)
        if how == "cancel":
            stream.cancel()
            await until_streams(server, 0)
    await until_streams(server, 0)


async def test_a_deadline_ends_the_call_and_not_the_task(caller: Caller) -> None:
    for seconds in (1, 8, PATIENCE_S):  # a host that is slow to begin is given longer
        gate, context = str(uuid.uuid4()), str(uuid.uuid4())
        request = pb.SendMessageRequest(tenant="hold", message=message(gate, context_id=context))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.stub.SendMessage(request, metadata=caller.metadata, timeout=seconds)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        listing = pb.ListTasksRequest(tenant="hold", context_id=context)
        if tasks := (await caller.ask("ListTasks", listing)).tasks:
            break
    (task,) = tasks
    assert task.status.state == pb.TASK_STATE_WORKING
    await caller.send("release", gate)
    again: pb.SendMessageResponse = await caller.ask("SendMessage", request)
    assert (again.task.id, again.task.status.state) == (task.id, pb.TASK_STATE_COMPLETED)


async def test_a_call_that_is_given_up_at_once_does_no_harm(caller: Caller) -> None:
    for _ in range(50):
        caller.stream("hello").cancel()
        caller.open("SendMessage", pb.SendMessageRequest(tenant="hello", message=message())).cancel()
    assert (await caller.send("hello")).status.state == pb.TASK_STATE_COMPLETED


async def test_a_reader_that_is_slow_gets_all_of_a_long_stream(caller: Caller) -> None:
    """The artifact has 8 MB, and nobody else waits for it."""
    slow = caller.stream("flood", "2000 4096")
    opening = await slow.read()
    assert (await caller.send("hello")).status.state == pb.TASK_STATE_COMPLETED
    numbers = [int(words([event]).split()[0]) for event in [opening, *await rest(slow)] if words([event])]
    assert numbers == list(range(2000))


async def test_many_watch_one_task(caller: Caller) -> None:
    gate = str(uuid.uuid4())
    first = caller.stream("hold", gate)
    task = (await begun(first))[0].task.id
    watching = [caller.subscribe("hold", task) for _ in range(20)]
    await asyncio.gather(*(stream.read() for stream in watching))
    await caller.send("release", gate)
    seen = await asyncio.gather(*(rest(stream) for stream in watching))
    assert all(each == seen[0] for each in seen)
    assert words(seen[0]) == "four five six"
