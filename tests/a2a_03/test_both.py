"""One task, seen by a client of 0.3 and one of 1.0 at once, whichever began it, over HTTP and over gRPC."""

from __future__ import annotations

import uuid

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub
from a2a.types import a2a_pb2 as pb

from tests.a2a_03.wire import Old, proto_sending, sending, text_of, words
from tests.doors.wire import Rest
from tests.doors.wire import sending as new_sending
from tests.grpc.wire import calling, rest
from tests.waiting import PATIENCE_S


def test_begun_in_0_3_watched_in_1_0_and_canceled_in_0_3(old: Old, new: Rest) -> None:
    with old.stream("message/stream", sending(str(uuid.uuid4())), "hold") as mine:
        task = next(mine).data["id"]
        with new.open("SubscribeToTask", {"id": task}, "hold") as theirs:
            assert next(theirs).data["task"]["id"] == task
            assert old.ok("tasks/cancel", {"id": task}, "hold")["status"]["state"] == "canceled"
            last = list(theirs)[-1]
        end = list(mine)[-1]
    assert last.data["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert (end.data["status"]["state"], end.data["final"]) == ("canceled", True)
    assert end.id == last.id
    assert end.data["status"]["timestamp"] == last.data["statusUpdate"]["status"]["timestamp"]


def test_begun_in_1_0_watched_in_0_3_and_canceled_in_1_0(old: Old, new: Rest) -> None:
    with new.open("SendStreamingMessage", new_sending(str(uuid.uuid4())), "hold") as mine:
        task = next(mine).data["task"]["id"]
        with (
            old.stream("tasks/resubscribe", {"id": task}, "hold") as theirs,
            old.rest_stream(f"tasks/{task}:subscribe", "hold") as others,
        ):
            assert next(theirs).data["id"] == next(others).data["task"]["id"] == task
            new.ok("CancelTask", {"id": task}, "hold")
            assert list(theirs)[-1].data["status"]["state"] == "canceled"
            assert list(others)[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELLED"
        assert list(mine)[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


def test_asked_in_one_and_answered_in_the_other(old: Old, new: Rest) -> None:
    asked = old.rest_ok("POST", "message:send", "ask", json=proto_sending("Plan"))["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    done = new.ok("SendMessage", new_sending("Paris", taskId=asked["id"], contextId=asked["contextId"]), "ask")["task"]
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    seen = old.ok("tasks/get", {"id": asked["id"]}, "ask")
    assert (seen["status"]["state"], text_of(seen)) == ("completed", text_of(done))
    assert [part["parts"][0]["text"] for part in seen["history"]] == [
        part["parts"][0]["text"] for part in done["history"]
    ]


def test_both_read_the_same_words(old: Old, new: Rest) -> None:
    gate = str(uuid.uuid4())
    with old.stream("message/stream", sending(gate), "hold") as mine:
        first = next(mine)
        with new.open("SubscribeToTask", {"id": first.data["id"]}, "hold") as theirs:
            begun = next(theirs)
            new.task(gate, "release")
            found = list(theirs)
        whole = list(mine)
    assert words(whole) == "one two three four five six"
    assert text_of(begun.data["task"]) + words(found) == words(whole)
    assert [frame.id for frame in whole if begun.id is not None and (frame.id or 0) > begun.id] == [
        frame.id for frame in found
    ]


async def test_over_grpc_too(place: str, old: Old) -> None:
    async with calling(place) as new, grpc.aio.insecure_channel(place) as channel:
        stub = A2AServiceStub(channel)
        begun = await new.send("hold", str(uuid.uuid4()), wait=False)
        following = stub.TaskSubscription(old_pb.TaskSubscriptionRequest(name=f"tasks/{begun.id}"), timeout=PATIENCE_S)
        assert (await following.read()).task.id == begun.id
        theirs = new.subscribe("hold", begun.id)
        assert (await theirs.read()).task.id == begun.id
        canceled = await stub.CancelTask(old_pb.CancelTaskRequest(name=f"tasks/{begun.id}"), timeout=PATIENCE_S)
        assert canceled.status.state == old_pb.TASK_STATE_CANCELLED
        last = (await rest(following))[-1].status_update
        assert (last.status.state, last.final) == (old_pb.TASK_STATE_CANCELLED, True)
        assert (await rest(theirs))[-1].status_update.status.state == pb.TASK_STATE_CANCELED
        said = old_pb.Message(message_id="m", role=old_pb.ROLE_USER, content=[old_pb.Part(text=str(uuid.uuid4()))])
        mine = (
            await stub.SendMessage(
                old_pb.SendMessageRequest(request=said, configuration=old_pb.SendMessageConfiguration(blocking=False)),
                timeout=PATIENCE_S,
            )
        ).task
        ended = await new.ask("CancelTask", pb.CancelTaskRequest(tenant="hold", id=mine.id))
        assert ended.status.state == pb.TASK_STATE_CANCELED
    assert old.ok("tasks/get", {"id": mine.id}, "hold")["status"]["state"] == "canceled"
