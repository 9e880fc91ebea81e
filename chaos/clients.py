"""Clients of the load: each sends one message and does not rest until it knows how its task ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from random import Random
from typing import Any, NamedTuple

import httpx

from chaos.door import Door, GaveUp, Refused
from chaos.history import (
    INPUT_REQUIRED,
    TERMINAL,
    Acknowledged,
    Cancel,
    Frame,
    GivenUp,
    History,
    Opening,
    Reading,
    Refusal,
    Sent,
    Stream,
    decode,
    text_of,
)
from chaos.words import ASK, FRAGILE, STEPS, STREAM, THREAD, Order, expected

CONVERSATIONS = 4
PAUSE_S = 0.1
LATE_S = 0.5
POLL_S = (0.03, 0.3)


class Plan(NamedTuple):
    """What one client does."""

    agent: str
    order: Order
    how: str
    """stream, send or poll."""
    cancel_after: int | None
    """Sights of the task after which it is cancelled."""
    watched: bool
    """A second reader follows the task."""
    webhook: bool
    context_id: str
    answer: str


def plan(chance: Random, name: str) -> Plan:
    agent = chance.choices([STREAM, STEPS, ASK, THREAD, FRAGILE], [4, 4, 3, 1, 1])[0]
    cancel = chance.random() < 0.12
    pieces, pause_ms = chance.randint(4, 24), chance.choice([0, 2, 5, 10, 25])
    if cancel:  # half way; around the question of one that asks
        pieces, pause_ms = (16, 20) if agent == ASK else (80, 20)
    conversation = agent != ASK and chance.random() < 0.25
    return Plan(
        agent,
        Order(chance.getrandbits(31), pieces, pause_ms),
        chance.choices(["stream", "send", "poll"], [5, 0 if cancel else 2, 2])[0],
        chance.randint(1, 12) if cancel else None,
        chance.random() < 0.2,
        chance.random() < 0.25,
        f"{name} {chance.randrange(CONVERSATIONS)}" if conversation else "",
        f"answer {chance.getrandbits(31)}",
    )


class Load:
    """All clients of a round."""

    def __init__(self, name: str, seed: int, door: Door, hooks: str, history: History) -> None:
        self.name = name
        self.seed = seed
        self.door = door
        self.hooks = hooks
        """URL below which webhooks are."""
        self.history = history
        self.begun = 0
        self.going_on = True

    async def run(self, clients: int) -> None:
        """Keep so many busy until `going_on` ends; return when each of them knows how its task ended, or gave up."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._one_after_another())

    async def _one_after_another(self) -> None:
        while self.going_on:
            self.begun += 1
            chance = Random(f"{self.seed} {self.name} {self.begun}")
            client = Client(self, chance, plan(chance, self.name))
            for error in await client.run():
                subject = client.task_id or client.sent.message_id
                if isinstance(error, GaveUp):
                    self.history.given_up.append(GivenUp(subject, str(error)))
                elif isinstance(error, Refused):
                    self.history.refusals.append(Refusal(subject, error.request, str(error)))
                else:
                    raise error
            await asyncio.sleep(chance.uniform(0, PAUSE_S))


class Reader:
    """One stream of one task, connection after connection."""

    def __init__(
        self,
        door: Door,
        history: History,
        chance: Random,
        agent: str,
        task_id: str,
        opened: Callable[[str], None],
        moved: Callable[[str], Awaitable[None]],
    ) -> None:
        self.door = door
        self.history = history
        self.chance = chance
        self.agent = agent
        self.task_id = task_id
        self.opened = opened
        self.moved = moved
        self.stream = Stream(task_id)
        self.last: int | None = None
        self.state = ""

    async def follow(self, body: dict[str, Any] | None = None) -> None:
        """To the end of the task, whatever happens to connections. `body` is sent until there is a task."""
        while self.state not in TERMINAL:
            self.door.check(f"the end of its stream, which is at event {self.last}")
            try:
                await self._connect(body)
            except httpx.TransportError:
                pass
            if self.state not in TERMINAL:
                await self.door.again(self.chance)

    async def _connect(self, body: dict[str, Any] | None) -> None:
        patience = self.chance.choice([1, 3, 8, 1000, 1000])
        if self.task_id:
            path, body = f"{self.agent}/tasks/{self.task_id}:subscribe", None
        else:
            path = f"{self.agent}/message:stream"
        async with aclosing(self.door.stream(self.chance, path, body, self.last)) as events:
            async for seq, data in events:
                await self._took(path, seq, data)
                patience -= 1
                if not patience:
                    self.door.counts.drops += 1
                    return

    async def _took(self, path: str, seq: int | None, data: bytes) -> None:
        if data.startswith(b'{"task"'):
            task = decode(data)["task"]
            self.state = task["status"]["state"]
            seq = self.last if seq is None else seq
            if not self.task_id:
                self.task_id = self.stream.task_id = task["id"]
            if seq is None:
                raise Refused(path, 200, b"a Task without an id: " + data)
            if not self.stream.seen:
                self.history.streams.append(self.stream)
            self.stream.seen.append(Opening(seq, data[len(b'{"task":') : -1]))
            self.opened(task["id"])
        elif seq is None:
            raise Refused(path, 200, b"an event without an id: " + data)
        else:
            data = self.history.one(self.task_id, seq, data)
            self.stream.seen.append(Frame(seq, data, time.monotonic()))
            self.door.counts.events += 1
            if data.startswith(b'{"statusUpdate"'):
                self.state = decode(data)["statusUpdate"]["status"]["state"]
        self.last = seq
        await self.moved(self.state)


class Client:
    def __init__(self, load: Load, chance: Random, plan: Plan) -> None:
        self.door = load.door
        self.history = load.history
        self.hooks = load.hooks
        self.chance = chance
        self.plan = plan
        self.task_id = ""
        self.state = ""
        self.looks = 0
        """How often the task was seen so far."""
        self.others: list[asyncio.Task[None]] = []
        wanted = expected(plan.agent, plan.order, plan.answer)
        self.sent = Sent(self._new_id(), plan.agent, wanted, plan.context_id, plan.webhook)
        self.history.sent[self.sent.message_id] = self.sent

    async def run(self) -> list[BaseException]:
        """To the end of the task. What it could not cope with."""
        found = await asyncio.gather(self._serve(), return_exceptions=True)
        found += await asyncio.gather(*self.others, return_exceptions=True)
        return [error for error in found if isinstance(error, BaseException)]

    async def _serve(self) -> None:
        if self.plan.how == "stream":
            await self._reader(self.moved).follow(self._first())
        else:
            await self._send()
            while self.state not in TERMINAL:
                await asyncio.sleep(self.chance.uniform(*POLL_S))
                await self._look()
        await self._look()

    async def moved(self, state: str) -> None:
        """The task was seen once more: cancel it or answer it when it is time."""
        self.state = state
        self.looks += 1
        if self.looks == self.plan.cancel_after and state not in TERMINAL:
            self.others.append(asyncio.create_task(self._cancel()))
        if state == INPUT_REQUIRED and not self.sent.answered:
            await self._answer()

    def _acknowledged(self, task_id: str) -> None:
        if task_id != self.task_id:
            self.history.acknowledged.append(Acknowledged(self.sent.message_id, task_id))
        if not self.task_id:
            self.task_id = task_id
            self.door.counts.tasks += 1
            if self.plan.watched:
                self.others.append(asyncio.create_task(self._watch()))

    def _first(self, **configuration: Any) -> dict[str, Any]:
        """The message that begins the task: the same body, however often it is sent."""
        if self.plan.webhook:
            configuration["taskPushNotificationConfig"] = {"url": f"{self.hooks}/{self.sent.message_id}"}
        message = self._message(self.sent.message_id, self.plan.order.text)
        if self.plan.context_id:
            message["contextId"] = self.plan.context_id
        return {"message": message, "configuration": configuration}

    def _message(self, message_id: str, text: str) -> dict[str, Any]:
        return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}

    async def _send(self) -> None:
        body = self._first(returnImmediately=self.plan.how == "poll")
        task = (await self._ask("POST", "message:send", "the answer to its message", body))["task"]
        self._acknowledged(task["id"])
        await self.moved(task["status"]["state"])

    async def _answer(self) -> None:
        self.sent.answer_id = self.sent.answer_id or self._new_id()
        message = {**self._message(self.sent.answer_id, self.plan.answer), "taskId": self.task_id}
        body = {"message": message, "configuration": {"returnImmediately": self.chance.random() < 0.5}}
        try:
            task = (await self._ask("POST", "message:send", "the answer to its answer", body))["task"]
        except Refused as refused:
            if refused.reason != "UNSUPPORTED_OPERATION" or self.plan.cancel_after is None:
                raise
            return  # the cancel came first
        self.history.acknowledged.append(Acknowledged(self.sent.answer_id, task["id"]))
        self.sent.answered = True

    async def _cancel(self) -> None:
        self.history.cancels.append(Cancel(self.task_id, "", time.monotonic()))
        state = ""
        while state not in TERMINAL:
            try:
                task = await self._ask("POST", f"tasks/{self.task_id}:cancel", "the answer to its cancel", {})
            except Refused as refused:
                if refused.reason != "TASK_NOT_CANCELABLE":
                    raise
                return
            state = task["status"]["state"]
            self.history.cancels.append(Cancel(self.task_id, state, time.monotonic()))
            await asyncio.sleep(self.chance.uniform(*POLL_S))

    async def _look(self) -> None:
        begun = time.monotonic()
        task = await self._ask("GET", f"tasks/{self.task_id}", f"the end of its task, which is {self.state}")
        reading = Reading(self.task_id, begun, time.monotonic(), task["status"]["state"], text_of(task))
        self.history.readings.append(reading)
        await self.moved(reading.state)

    async def _watch(self) -> None:
        """A second reader, who comes later and only looks."""
        await asyncio.sleep(self.chance.uniform(0, LATE_S))
        reader = self._reader(_only_look, self.task_id)
        try:
            await reader.follow()
        except Refused as refused:
            if refused.reason != "UNSUPPORTED_OPERATION" or reader.last is not None:
                raise  # otherwise the task was over before it came

    def _reader(self, moved: Callable[[str], Awaitable[None]], task_id: str = "") -> Reader:
        opened = self._acknowledged if not task_id else _nothing
        return Reader(self.door, self.history, self.chance, self.plan.agent, task_id, opened, moved)

    async def _ask(self, method: str, path: str, waiting_for: str, body: dict[str, Any] | None = None) -> Any:
        return await self.door.ask(self.chance, method, f"{self.plan.agent}/{path}", waiting_for, body)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))


async def _only_look(state: str) -> None:
    return None


def _nothing(task_id: str) -> None:
    return None
