"""A message sent twice: one task, one answer, whatever happens between the two."""

from __future__ import annotations

import asyncio
import uuid
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from roost import Agent
from roost.engine.extension import Incoming
from roost.engine.store_types import Scope
from roost.extensions.idempotency import URI, Idempotency, fingerprint, key
from roost.identity.principal import LOCAL
from roost.protocol.codec import decode, encode
from roost.protocol.errors import IdempotencyKeyReused, MessageIdMalformed, TooManyRequests
from roost.protocol.types import SendMessageRequest, TaskState
from roost.stores.memory import MemoryStore
from tests.agents.talk import others_go_on, serving
from tests.engine.shared import replicas
from tests.waiting import until

SCOPE = Scope("tenant", "owner", "agent")


def request(text: str = "go", message_id: str = "", wait: bool = True, **message: Any) -> SendMessageRequest:
    body = {
        "message": {
            "messageId": message_id or str(uuid.uuid4()),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **message,
        },
        "configuration": {"returnImmediately": not wait},
    }
    return decode(SendMessageRequest, encode(body))


class Counting:
    """An agent that counts its calls, and waits at the gate when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()

    def agent(self, **options: Any) -> Agent:
        agent = Agent("counting", **options)

        @agent.on_message
        async def count(task):
            self.calls += 1
            yield f"{task.text} "
            if task.text == "ask":
                yield (await task.ask("what?")).text
            if task.text == "wait":
                await self.gate.wait()
            yield "end"

        return agent


async def send(engine: Any, asked: SendMessageRequest, extensions: tuple[str, ...] = ()) -> Any:
    return await engine.send(LOCAL, "counting", asked, extensions)


async def test_a_repeat_has_the_answer_of_the_first_byte_for_byte_and_makes_no_task():
    counting = Counting()
    async with serving(counting.agent()) as (_, engine):
        asked = request()
        first = await send(engine, asked)
        again = await send(engine, asked)
        assert (again.task, again.replayed, first.replayed) == (first.task, True, False)
        assert counting.calls == 1
        assert len(engine.store.rows) == 1
        assert engine.stats.repeats == {"hit": 1, "miss": 1, "collision": 0, "eviction": 0}


async def test_two_at_the_same_time_make_one_task():
    counting = Counting()
    async with serving(counting.agent()) as (_, engine):
        asked = request()
        answers = await asyncio.gather(*(send(engine, asked) for _ in range(20)))
        assert len({answer.task for answer in answers}) == 1
        assert sorted(answer.replayed for answer in answers) == [False] + [True] * 19
        assert counting.calls == 1


async def test_two_at_the_same_time_on_two_hosts_make_one_task():
    counting = Counting()
    async with replicas(counting.agent, 3) as hosts:
        for _ in range(20):
            asked = request()
            answers = await asyncio.gather(*(send(host.engine, asked) for host in hosts))
            assert len({answer.task for answer in answers}) == 1
        assert counting.calls == 20
        assert len(hosts[0].engine.store.rows) == 20


async def test_a_repeat_while_the_task_runs_waits_for_it_on_any_host():
    counting = Counting()
    async with replicas(counting.agent) as (a, b):
        asked = request("wait")
        sending = [asyncio.create_task(send(host.engine, asked)) for host in (a, b, b)]
        await until(lambda: counting.calls)
        for host in (a, b):
            await others_go_on(host.client)
        assert not any(task.done() for task in sending)
        counting.gate.set()
        answers = await asyncio.gather(*sending)
        assert len({answer.task for answer in answers}) == 1
        assert b"TASK_STATE_COMPLETED" in answers[0].task
        assert counting.calls == 1


async def test_a_repeat_that_does_not_wait_has_the_stored_answer_although_the_task_went_on():
    counting = Counting()
    async with serving(counting.agent()) as (_, engine):
        asked = request(wait=False)
        first = await send(engine, asked)
        await until(lambda: b"COMPLETED" in first.task or counting.calls)
        task_id = next(iter(engine.store.rows))
        await until(lambda: engine.store.rows[task_id].head.state is TaskState.COMPLETED)
        again = await send(engine, asked)
        assert again.task == first.task
        assert b"TASK_STATE_SUBMITTED" in again.task


async def test_a_stream_again_is_the_whole_stream_again():
    counting = Counting()
    async with replicas(counting.agent) as (a, b):
        asked = request()

        async def streamed(engine: Any) -> tuple[bytes, int, list[tuple[int, bytes]], bool]:
            stream = await engine.stream(LOCAL, "counting", asked)
            frames = []
            while (batch := await stream.follower.batch()) is not None:
                frames += [(frame.seq, frame.data) for frame in batch]
            stream.release()
            return stream.opening.task, stream.position, frames, stream.opening.replayed

        first = await streamed(a.engine)
        for engine in (a.engine, b.engine):
            again = await streamed(engine)
            assert again[:3] == first[:3]
            assert again[3] is True
        assert b"COMPLETED" in first[2][-1][1]
        assert counting.calls == 1


async def test_an_answer_sent_twice_is_one_answer():
    counting = Counting()
    async with replicas(counting.agent) as (a, b):
        task = await a.client.send("ask")
        asked = request("you", taskId=task.id)
        answers = await asyncio.gather(*(send(host.engine, asked) for host in (a, b, a, b)))
        assert len({answer.task for answer in answers}) == 1
        late = await send(b.engine, asked)
        assert late.task == answers[0].task
        assert len((await a.client.get(task)).history) == 3


async def test_the_answer_to_the_first_message_stays_what_it_was_when_the_task_goes_on():
    counting = Counting()
    async with serving(counting.agent()) as (client, engine):
        asked = request("ask")
        first = await send(engine, asked)
        task_id = next(iter(engine.store.rows))
        await client.send("you", task=task_id)
        again = await send(engine, asked)
        assert again.task == first.task
        assert b"TASK_STATE_INPUT_REQUIRED" in again.task


async def test_another_message_with_the_same_id_is_refused_with_both_hashes_and_changes_nothing():
    counting = Counting()
    async with serving(counting.agent()) as (_, engine):
        asked = request()
        await send(engine, asked)
        other = request("other", asked.message.message_id)
        with pytest.raises(IdempotencyKeyReused) as refused:
            await send(engine, other)
        assert refused.value.metadata == {
            "message_id": asked.message.message_id,
            "original_request_hash": fingerprint(asked),
            "submitted_request_hash": fingerprint(other),
        }
        assert len(engine.store.rows) == 1
        assert engine.stats.repeats["collision"] == 1


async def test_an_error_before_the_accept_reserves_nothing():
    counting = Counting()
    from roost.engine.hosted import AgentLimits

    agent = counting.agent()
    async with serving(agent) as (_, engine):
        queue = engine.runner.queues["counting"]
        queue.hosted.profile.limits = AgentLimits(concurrency=1, queue=0)
        await send(engine, request("wait", wait=False))
        asked = request()
        with pytest.raises(TooManyRequests):
            await send(engine, asked)
        counting.gate.set()
        await until(lambda: not queue.running)
        assert not (await send(engine, asked)).replayed


async def test_another_owner_another_agent_another_message():
    asked = request()
    keys = {
        key(scope, asked.message.message_id)
        for scope in (SCOPE, SCOPE._replace(tenant="t"), SCOPE._replace(owner="o"), SCOPE._replace(agent="a"))
    }
    assert len(keys) == 4
    assert key(Scope("a", "bc", "d"), "x") != key(Scope("ab", "c", "d"), "x"), "the parts cannot run together"


def reserves(mode: str, asked: SendMessageRequest, *, activated: bool = False, keyed: bool = False) -> bool:
    incoming = Incoming(LOCAL, "agent", asked, [URI] if activated else [], keyed)
    return Idempotency(mode).accept(incoming).reservation is not None


def test_which_messages_have_a_key():
    named, unique = request(message_id="m-1"), request()
    table = {
        mode: [
            reserves(mode, named),
            reserves(mode, named, keyed=True),
            reserves(mode, unique),
            reserves(mode, unique, activated=True),
        ]
        for mode in ("auto", "always", "asked")
    }
    assert table == {
        "auto": [False, True, True, True],
        "always": [True, True, True, True],
        "asked": [False, True, False, True],
    }


@pytest.mark.parametrize("message_id", ["x" * 257, "a\nb", "a\0"])
def test_an_id_that_cannot_be_a_key_is_refused_where_the_client_declares_it_one(message_id):
    with pytest.raises(MessageIdMalformed):
        reserves("auto", request(message_id=message_id), keyed=True)
    assert not reserves("auto", request(message_id=message_id))


@pytest.mark.parametrize("message_id", ["m-1", "x" * 32, "00000000-0000-0000-0000-00000000000", "a\nb"])
def test_an_id_that_is_no_uuid_is_refused_where_the_extension_is_activated(message_id):
    with pytest.raises(MessageIdMalformed) as refused:
        reserves("auto", request(message_id=message_id), activated=True)
    assert (refused.value.http, refused.value.field) == (400, "message.messageId")


async def test_a_plain_client_may_use_an_id_that_is_not_unique_as_often_as_it_likes():
    counting = Counting()
    async with serving(counting.agent()) as (_, engine):
        for _ in range(3):
            assert not (await send(engine, request(message_id="1"))).replayed
        assert counting.calls == 3


async def test_a_direct_reply_is_given_again():
    calls = []
    agent = Agent("counting", direct=True)

    @agent.on_message
    async def reply(task):
        calls.append(task.text)
        task.reply("hello")

    async with serving(agent) as (_, engine):
        asked = request()
        answers = await asyncio.gather(*(send(engine, asked) for _ in range(3)))
        assert {answer.message for answer in answers} == {answers[0].message}
        assert b"hello" in answers[0].message
        assert calls == ["go"]


async def test_a_direct_reply_that_comes_while_a_repeat_reads_the_journal_is_given_to_it():
    class Slow(MemoryStore):
        reading = 0

        async def read_internal(self, task_id):
            found = await super().read_internal(task_id)
            self.reading += 1
            await read.wait()
            return found

    read, answer = asyncio.Event(), asyncio.Event()
    store = Slow()
    agent = Agent("counting", direct=True)

    @agent.on_message
    async def reply(task):
        await answer.wait()
        task.reply("hello")

    async with serving(agent, store=store) as (_, engine):
        asked = request()
        first = asyncio.create_task(send(engine, asked))
        await until(lambda: store.rows)
        repeat = asyncio.create_task(send(engine, asked))
        await until(lambda: store.reading)
        answer.set()
        body = (await first).message
        read.set()
        assert (await repeat).message == body


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), values, max_size=4))
def test_the_fingerprint_is_sha_256_of_the_canonical_form_without_the_message_id(metadata):
    asked = decode(
        SendMessageRequest,
        encode(
            {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}], "metadata": metadata},
                "metadata": metadata,
            }
        ),
    )
    import msgspec

    plain = msgspec.to_builtins(asked)
    del plain["message"]["messageId"]
    assert fingerprint(asked) == sha256(rfc8785.dumps(plain)).hexdigest()
    assert fingerprint(replace(asked, message=replace(asked.message, message_id="other"))) == fingerprint(asked)
