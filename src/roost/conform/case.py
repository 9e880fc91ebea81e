"""What a check has in its hands: one binding of the host, and the few things that all checks do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from roost.conform.client import (
    ConformClient,
    ConformResponse,
    ConformStream,
    HttpClient,
    JSONObject,
    StreamEvent,
    limited,
)
from roost.conform.hints import Hint
from roost.conform.outcome import CheckFailed, NotJudged, Skipped, shown
from roost.conform.target import Target
from roost.protocol.errors import A2AError
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import Task, TaskState

T = TypeVar("T")

BRIEF = 200
"""Characters of what a host said in the reason of a check that could not be done."""
STREAMS = ("SendStreamingMessage", "SubscribeToTask")
POLL_S = 0.1
SLOW_S = 0.2
"""Work that takes less is over before anything can be seen of it."""
TRIES = 3
"""Attempts to see a task while it is at work. A busy machine or a slow network may lose some of them."""
Headers = Mapping[str, str | None]


class Case:
    def __init__(self, target: Target, client: ConformClient) -> None:
        self.target = target
        self.client = client
        self.hints = target.hints
        self.limit = target.options.timeout

    @property
    def http(self) -> HttpClient:
        if not isinstance(self.client, HttpClient):
            raise Skipped("only on bindings over HTTP")
        return self.client

    # Calls that are judged

    async def call(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        answer = await self.client.call(operation, params, headers, token)
        self._check_limit(answer)
        return answer

    async def ok(self, operation: str, params: JSONObject, headers: Headers | None = None) -> JSONObject:
        answer = await self.call(operation, params, headers)
        if answer.result is None:
            raise CheckFailed(answer.seen, f"{operation} is answered")
        return answer.result

    async def tried(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        """Of a stream its refusal, or its first event."""
        if operation not in STREAMS:
            return await self.call(operation, params, headers, token)
        async with self.stream(operation, params, headers, token) as stream:
            if stream.refused is not None:
                return stream.refused
            event = await anext(stream.events, None)
            return ConformResponse(
                event.data if event else {}, None, {}, 200, str(event.data) if event else "an empty stream"
            )

    async def refused(
        self,
        operation: str,
        params: JSONObject,
        *errors: type[A2AError],
        headers: Headers | None = None,
        token: str | None = None,
    ) -> ConformResponse:
        """With one of these errors, in the form of the binding."""
        answer = await self.tried(operation, params, headers, token)
        self.is_refusal(answer, operation, *errors)
        return answer

    def is_refusal(self, answer: ConformResponse, operation: str, *errors: type[A2AError]) -> None:
        if not self.says(answer, *errors):
            raise CheckFailed(answer.seen, f"{operation} is refused with {_named(self.client, errors)}")

    def says(self, answer: ConformResponse, *errors: type[A2AError]) -> bool:
        """Whether it is one of these errors."""
        if answer.problem is None:
            return False
        code, info = answer.problem.code, answer.problem.info
        reason = info.get("reason") if info else None
        return any(code == self.client.code(error) and reason in (None, error.reason) for error in errors)

    @asynccontextmanager
    async def stream(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> AsyncIterator[ConformStream]:
        async with self.client.stream(operation, params, headers, token) as stream:
            if stream.refused is not None:
                self._check_limit(stream.refused)
            yield stream

    @asynccontextmanager
    async def events(
        self, operation: str, params: JSONObject, headers: Headers | None = None
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        async with self.stream(operation, params, headers) as stream:
            if stream.refused is not None:
                raise CheckFailed(stream.refused.seen, f"{operation} is answered with a stream")
            yield stream.events

    async def all_events(self, operation: str, params: JSONObject, headers: Headers | None = None) -> list[StreamEvent]:
        """Until the host ends the stream."""
        async with self.events(operation, params, headers) as events:
            return [event async for event in events]

    # What has to be there before something can be judged

    async def send(self, hint: Hint | None = None, *, wait: bool = True, **message: Any) -> JSONObject:
        """The task that comes of a message."""
        params: JSONObject = {"message": (hint or self.hints.plain).message(**message)}
        if not wait:
            params["configuration"] = {"returnImmediately": True}
        answer = await self.prepared("SendMessage", params)
        task = answer.get("task")
        if "message" in answer:
            raise Skipped("the agent answers with a message, and makes no task")
        if not isinstance(task, dict) or not isinstance(task.get("id"), str) or not state(task):
            raise NotJudged(f"SendMessage gave no task: {self._brief(answer)}")
        return {"contextId": "", **task}

    async def prepared(self, operation: str, params: JSONObject) -> JSONObject:
        try:
            answer = await self.call(operation, params)
        except CheckFailed as error:
            raise NotJudged(f"{operation}: {self._brief(error.observed)}") from None
        if answer.result is None:
            raise NotJudged(f"{operation} was refused: {self._brief(answer.seen)}")
        return answer.result

    def _check_limit(self, answer: ConformResponse) -> None:
        """A host may take no more for now; nothing can be said of it then."""
        if limited(self.client, answer):
            raise NotJudged(f"the host limits how often it may be called: {self._brief(answer.seen)}")

    def _brief(self, value: object) -> str:
        return shown(value, self.target.secrets, BRIEF)

    async def ended(self, hint: Hint | None = None) -> JSONObject:
        """A task that is over, the same for all checks on this binding: it does not change any more."""
        key = f"ended {self.client.name} {hint}"
        if key not in self.target.learned:
            self.target.learned[key] = await self._ended(hint)
        found: JSONObject = self.target.learned[key]
        return found

    async def _ended(self, hint: Hint | None) -> JSONObject:
        task = await self.send(hint)
        if state(task) in TERMINAL:
            return task
        if state(task) is TaskState.INPUT_REQUIRED:
            await self.prepared("CancelTask", {"id": task["id"]})
            return await self.get(task["id"])
        return await self.until(task["id"], "a terminal state", lambda found: state(found) in TERMINAL)

    async def paused(self) -> JSONObject:
        """A task that waits for input."""
        if self.hints.pause is None:
            raise Skipped("nobody says how to make this agent ask for input: give --profile or --agent-hints")
        task = await self.send(self.hints.pause)
        if state(task) is not TaskState.INPUT_REQUIRED:
            raise Skipped(f"the agent was asked to pause, and is {state(task)}")
        return task

    async def slow(self) -> Hint:
        """A message that keeps the agent busy."""
        hint = self.hints.slow
        if hint is None:
            raise Skipped("nobody says how to make this agent work for long: give --profile or --agent-hints")
        if "slow_s" not in self.target.learned:
            begun = time.monotonic()
            await self.send(hint)
            self.target.learned["slow_s"] = time.monotonic() - begun
        if self.target.learned["slow_s"] < SLOW_S:
            raise Skipped("the agent was asked to work for long, and was done at once")
        return hint

    async def get(self, task_id: str, client: ConformClient | None = None, **more: Any) -> JSONObject:
        """A read that is only a means."""
        return await Case(self.target, client or self.client).prepared("GetTask", {"id": task_id, **more})

    async def until(self, task_id: str, what: str, reached: Any) -> JSONObject:
        """Ask until it is so; CheckFailed if it never is."""
        end = time.monotonic() + self.limit
        task: JSONObject = {}
        while time.monotonic() < end:
            task = await self.ok("GetTask", {"id": task_id})
            if reached(task):
                return task
            await asyncio.sleep(POLL_S)
        raise CheckFailed(task, f"the task comes to {what} within {self.limit:g} s")


def state(task: JSONObject) -> TaskState | None:
    try:
        return TaskState(task["status"]["state"])
    except (KeyError, TypeError, ValueError):
        return None


def settled(task: JSONObject) -> bool:
    return state(task) in SETTLED


def valid(kind: type[T], value: object, what: str) -> T:
    """Exactly as the specification has it: camelCase, the names of enums, every required field."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise CheckFailed(value, f"{what}: {error}") from None


def same(left: JSONObject, right: JSONObject) -> bool:
    """Two tasks; how fine their timestamps are, and what is a default, does not matter."""
    return bool(_plain(left) == _plain(right))


def _plain(task: JSONObject) -> Any:
    try:
        found = msgspec.convert(task, Task)
    except msgspec.ValidationError:
        return task
    found.status.timestamp = (found.status.timestamp or "").rstrip("Z")[:23].rstrip("0").rstrip(".")
    return msgspec.to_builtins(found)


def _named(client: ConformClient, errors: tuple[type[A2AError], ...]) -> str:
    return " or ".join(f"{error.reason} ({client.code(error)})" for error in errors)
