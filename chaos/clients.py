"""The clients of the load. Each sends one message and continues until it knows how its task ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from random import Random
from typing import Any, NamedTuple

import httpx

from chaos.fleet_client import DeadlineExceeded, FleetClient, Refused
from chaos.history import (
    INPUT_REQUIRED,
    TERMINAL,
    Acknowledged,
    Cancel,
    Frame,
    History,
    Opening,
    Reading,
    Refusal,
    Sent,
    Stream,
    TimedOut,
    decode,
    text_of,
)
from chaos.texts import ASK, FRAGILE, STEPS, STREAM, THREAD, Job, expected

CONVERSATIONS = 4
PAUSE_S = 0.1
LATE_S = 0.5
POLL_S = (0.03, 0.3)
PATIENT_S = 0.25
"""The pause of a task that takes long, after each piece."""


class Plan(NamedTuple):
    """The behaviour of one client."""

    agent: str
    job: Job
    how: str
    """stream, send or poll."""
    cancel_after: int | None
    """The number of updates after which the client cancels the task; None if it does not."""
    watched: bool
    """Whether a second reader follows the task."""
    webhook: bool
    context_id: str
    answer: str


def plan(rng: Random, name: str) -> Plan:
    agent = rng.choices([STREAM, STEPS, ASK, THREAD, FRAGILE], [4, 4, 3, 1, 1])[0]
    cancel = rng.random() < 0.12
    pieces, pause_ms = rng.randint(4, 24), rng.choice([0, 2, 5, 10, 25])
    if cancel:  # in the middle, or around the question of an agent that asks
        pieces, pause_ms = (16, 20) if agent == ASK else (80, 20)
    conversation = agent != ASK and rng.random() < 0.25
    return Plan(
        agent,
        Job(rng.getrandbits(31), pieces, pause_ms),
        rng.choices(["stream", "send", "poll"], [5, 0 if cancel else 2, 2])[0],
        rng.randint(1, 12) if cancel else None,
        rng.random() < 0.2,
        rng.random() < 0.25,
        f"{name} {rng.randrange(CONVERSATIONS)}" if conversation else "",
        f"answer {rng.getrandbits(31)}",
    )


def patient_plan(seconds: float) -> Callable[[Random, str], Plan]:
    """Return a function that plans clients whose tasks run for about so long, without a step in between."""

    def plan_one(rng: Random, name: str) -> Plan:
        job = Job(rng.getrandbits(31), round(seconds / PATIENT_S * rng.uniform(0.8, 1.2)), round(PATIENT_S * 1000))
        return Plan(rng.choice([STREAM, THREAD]), job, rng.choice(["stream", "poll"]), None, False, False, "", "")

    return plan_one


class Load:
    """All clients of a round, each with a plan of its own."""

    def __init__(
        self,
        name: str,
        seed: int,
        fleet: FleetClient,
        hooks: str,
        history: History,
        planned: Callable[[Random, str], Plan] = plan,
    ) -> None:
        self.planned = planned
        self.name = name
        self.seed = seed
        self.fleet = fleet
        self.hooks = hooks
        """The URL below which the webhooks are."""
        self.history = history
        self.started = 0
        self.running = True

    async def run(self, clients: int) -> None:
        """Keep this many clients busy until `running` is cleared, and return when the last of them has ended."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._run_clients())

    async def _run_clients(self) -> None:
        while self.running:
            self.started += 1
            rng = Random(f"{self.seed} {self.name} {self.started}")
            client = Client(self, rng, self.planned(rng, self.name))
            for error in await client.run():
                subject = client.task_id or client.sent.message_id
                if isinstance(error, DeadlineExceeded):
                    self.history.timeouts.append(TimedOut(subject, str(error)))
                elif isinstance(error, Refused):
                    self.history.refusals.append(Refusal(subject, error.request, str(error)))
                else:
                    raise error
            await asyncio.sleep(rng.uniform(0, PAUSE_S))


class Reader:
    """One stream of one task, over as many connections as it needs."""

    def __init__(
        self,
        fleet: FleetClient,
        history: History,
        rng: Random,
        agent: str,
        task_id: str,
        on_task: Callable[[str], None],
        on_update: Callable[[str], Awaitable[None]],
    ) -> None:
        self.fleet = fleet
        self.history = history
        self.rng = rng
        self.agent = agent
        self.task_id = task_id
        self.on_task = on_task
        self.on_update = on_update
        self.stream = Stream(task_id)
        self.last: int | None = None
        self.state = ""

    async def follow(self, body: dict[str, Any] | None = None) -> None:
        """Follow the task to its end, whatever happens to connections. `body` is sent until there is a task."""
        while self.state not in TERMINAL:
            self.fleet.check(f"the end of its stream, which is at event {self.last}")
            try:
                await self._connect(body)
            except httpx.TransportError:
                pass
            if self.state not in TERMINAL:
                await self.fleet.back_off(self.rng)

    async def _connect(self, body: dict[str, Any] | None) -> None:
        remaining = self.rng.choice([1, 3, 8, 1000, 1000])
        if self.task_id:
            path, body = f"{self.agent}/tasks/{self.task_id}:subscribe", None
        else:
            path = f"{self.agent}/message:stream"
        async with aclosing(self.fleet.stream(self.rng, path, body, self.last)) as events:
            async for seq, data in events:
                await self._receive(path, seq, data)
                remaining -= 1
                if not remaining:
                    self.fleet.counts.drops += 1
                    return

    async def _receive(self, path: str, seq: int | None, data: bytes) -> None:
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
            self.on_task(task["id"])
        elif seq is None:
            raise Refused(path, 200, b"an event without an id: " + data)
        else:
            data = self.history.intern(self.task_id, seq, data)
            self.stream.seen.append(Frame(seq, data, time.monotonic()))
            self.fleet.counts.events += 1
            if data.startswith(b'{"statusUpdate"'):
                self.state = decode(data)["statusUpdate"]["status"]["state"]
        self.last = seq
        await self.on_update(self.state)


class Client:
    def __init__(self, load: Load, rng: Random, plan: Plan) -> None:
        self.fleet = load.fleet
        self.history = load.history
        self.hooks = load.hooks
        self.rng = rng
        self.plan = plan
        self.task_id = ""
        self.state = ""
        self.updates = 0
        """How often the task was seen so far."""
        self.background: list[asyncio.Task[None]] = []
        text = expected(plan.agent, plan.job, plan.answer)
        self.sent = Sent(self._new_id(), plan.agent, text, plan.context_id, plan.webhook)
        self.history.sent[self.sent.message_id] = self.sent

    async def run(self) -> list[BaseException]:
        """Follow the task to its end. Return the errors that the client could not handle."""
        found = await asyncio.gather(self._follow(), return_exceptions=True)
        found += await asyncio.gather(*self.background, return_exceptions=True)
        return [error for error in found if isinstance(error, BaseException)]

    async def _follow(self) -> None:
        if self.plan.how == "stream":
            await self._reader(self.on_update).follow(self._first_request())
        else:
            await self._send()
            while self.state not in TERMINAL:
                await asyncio.sleep(self.rng.uniform(*POLL_S))
                await self._poll()
        await self._poll()

    async def on_update(self, state: str) -> None:
        """Handle an update of the task: cancel it or answer its question when it is time."""
        self.state = state
        self.updates += 1
        if self.updates == self.plan.cancel_after and state not in TERMINAL:
            self.background.append(asyncio.create_task(self._cancel()))
        if state == INPUT_REQUIRED and not self.sent.answered:
            await self._answer()

    def _acknowledged(self, task_id: str) -> None:
        if task_id != self.task_id:
            self.history.acknowledged.append(Acknowledged(self.sent.message_id, task_id))
        if not self.task_id:
            self.task_id = task_id
            self.fleet.counts.tasks += 1
            if self.plan.watched:
                self.background.append(asyncio.create_task(self._watch()))

    def _first_request(self, **configuration: Any) -> dict[str, Any]:
        """Return the request that begins the task. It is the same, however often it is sent."""
        if self.plan.webhook:
            configuration["taskPushNotificationConfig"] = {"url": f"{self.hooks}/{self.sent.message_id}"}
        message = self._message(self.sent.message_id, self.plan.job.text)
        if self.plan.context_id:
            message["contextId"] = self.plan.context_id
        return {"message": message, "configuration": configuration}

    def _message(self, message_id: str, text: str) -> dict[str, Any]:
        return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}

    async def _send(self) -> None:
        body = self._first_request(returnImmediately=self.plan.how == "poll")
        task = (await self._request("POST", "message:send", "the response to its message", body))["task"]
        self._acknowledged(task["id"])
        await self.on_update(task["status"]["state"])

    async def _answer(self) -> None:
        self.sent.answer_id = self.sent.answer_id or self._new_id()
        message = {**self._message(self.sent.answer_id, self.plan.answer), "taskId": self.task_id}
        body = {"message": message, "configuration": {"returnImmediately": self.rng.random() < 0.5}}
        try:
            task = (await self._request("POST", "message:send", "the response to its answer", body))["task"]
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
                task = await self._request("POST", f"tasks/{self.task_id}:cancel", "the response to its cancel", {})
            except Refused as refused:
                if refused.reason != "TASK_NOT_CANCELABLE":
                    raise
                return
            state = task["status"]["state"]
            self.history.cancels.append(Cancel(self.task_id, state, time.monotonic()))
            await asyncio.sleep(self.rng.uniform(*POLL_S))

    async def _poll(self) -> None:
        begun = time.monotonic()
        task = await self._request("GET", f"tasks/{self.task_id}", f"the end of its task, which is {self.state}")
        reading = Reading(self.task_id, begun, time.monotonic(), task["status"]["state"], text_of(task))
        self.history.readings.append(reading)
        await self.on_update(reading.state)

    async def _watch(self) -> None:
        """Follow the task as a second reader, which starts later and only reads."""
        await asyncio.sleep(self.rng.uniform(0, LATE_S))
        reader = self._reader(_ignore_update, self.task_id)
        try:
            await reader.follow()
        except Refused as refused:
            if refused.reason != "UNSUPPORTED_OPERATION" or reader.last is not None:
                raise  # otherwise the task was over before this reader started

    def _reader(self, on_update: Callable[[str], Awaitable[None]], task_id: str = "") -> Reader:
        on_task = self._acknowledged if not task_id else _ignore_task
        return Reader(self.fleet, self.history, self.rng, self.plan.agent, task_id, on_task, on_update)

    async def _request(self, method: str, path: str, waiting_for: str, body: dict[str, Any] | None = None) -> Any:
        return await self.fleet.request(self.rng, method, f"{self.plan.agent}/{path}", waiting_for, body)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


async def _ignore_update(state: str) -> None:
    return None


def _ignore_task(task_id: str) -> None:
    return None
