"""The tools of a check: one binding of the host, and the calls that all checks share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from roost.conform.client import (
    ConformClient,
    ConformResponse,
    ConformStream,
    Headers,
    HttpClient,
    JSONObject,
    StreamEvent,
    limited,
)
from roost.conform.hints import NO_PAUSE, NO_SLOW, Hint
from roost.conform.outcome import CheckFailed, NotJudged, Skipped, shown
from roost.conform.target import Target
from roost.protocol.errors import A2AError
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import Task, TaskState

T = TypeVar("T")

BRIEF = 200
"""Characters of a response in the reason of a check that could not be judged."""
STREAMS = ("SendStreamingMessage", "SubscribeToTask")
POLL_S = 0.1
SLOW_S = 0.2
"""Seconds of work below which an agent does not count as slow: it is done before anything can be seen of it."""
TRIES = 3
"""Attempts to see a task while it is at work. A busy machine or a slow network may lose some of them."""


class Case:
    def __init__(self, target: Target, client: ConformClient) -> None:
        self.target = target
        self.client = client
        self.hints = target.hints
        self.limit = target.options.timeout
        """Seconds for each request."""

    @property
    def http(self) -> HttpClient:
        """The client, on a binding over HTTP. The check is skipped on gRPC."""
        if not isinstance(self.client, HttpClient):
            raise Skipped("the check is only for bindings over HTTP")
        return self.client

    # Calls that are judged: a wrong response is a failure of the check.

    async def call(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        response = await self.client.call(operation, params, headers, token)
        self._check_limit(response)
        return response

    async def ok(self, operation: str, params: JSONObject, headers: Headers | None = None) -> JSONObject:
        """Call an operation that must succeed, and return its result."""
        response = await self.call(operation, params, headers)
        if response.result is None:
            raise CheckFailed(response.seen, f"{operation} succeeds")
        return response.result

    async def attempt(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        """Call an operation. For one that streams, return the error or the first event."""
        if operation not in STREAMS:
            return await self.call(operation, params, headers, token)
        async with self.stream(operation, params, headers, token) as stream:
            if stream.refused is not None:
                return stream.refused
            event = await anext(stream.events, None)
            if event is None:
                return ConformResponse({}, None, {}, 200, "an empty stream")
            return ConformResponse(event.data, None, {}, 200, str(event.data))

    async def refused(
        self,
        operation: str,
        params: JSONObject,
        *errors: type[A2AError],
        headers: Headers | None = None,
        token: str | None = None,
    ) -> ConformResponse:
        """Call an operation that must return one of these errors."""
        response = await self.attempt(operation, params, headers, token)
        self.check_error(response, operation, *errors)
        return response

    def check_error(self, response: ConformResponse, operation: str, *errors: type[A2AError]) -> None:
        """The response must be one of these errors."""
        if not self.is_error(response, *errors):
            raise CheckFailed(response.seen, f"{operation} returns {_named(self.client, errors)}")

    def is_error(self, response: ConformResponse, *errors: type[A2AError]) -> bool:
        if response.error is None:
            return False
        code, info = response.error.code, response.error.info
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
        """Call an operation that must stream, and yield its events."""
        async with self.stream(operation, params, headers) as stream:
            if stream.refused is not None:
                raise CheckFailed(stream.refused.seen, f"{operation} returns a stream")
            yield stream.events

    async def all_events(self, operation: str, params: JSONObject, headers: Headers | None = None) -> list[StreamEvent]:
        """Call an operation that must stream, and return its events when the host has ended the stream."""
        async with self.events(operation, params, headers) as events:
            return [event async for event in events]

    # Preparations: a wrong response means that the check cannot be judged.

    async def send(self, hint: Hint | None = None, *, wait: bool = True, **message: Any) -> JSONObject:
        """Send a message and return its task. `message` are further fields of the message."""
        params: JSONObject = {"message": (hint or self.hints.plain).message(**message)}
        if not wait:
            params["configuration"] = {"returnImmediately": True}
        result = await self.prepared("SendMessage", params)
        task = result.get("task")
        if "message" in result:
            raise Skipped("the agent answers with a message and creates no task")
        if not isinstance(task, dict) or not isinstance(task.get("id"), str) or not state(task):
            raise NotJudged(f"SendMessage returned no task: {self._brief(result)}")
        return {"contextId": "", **task}

    async def prepared(self, operation: str, params: JSONObject) -> JSONObject:
        try:
            response = await self.call(operation, params)
        except CheckFailed as error:
            raise NotJudged(f"{operation}: {self._brief(error.observed)}") from None
        if response.result is None:
            raise NotJudged(f"{operation} returned an error: {self._brief(response.seen)}")
        return response.result

    def _check_limit(self, response: ConformResponse) -> None:
        """A host may limit the rate of requests. Then nothing can be said about it."""
        if limited(self.client, response):
            raise NotJudged(f"the host limits the rate of requests: {self._brief(response.seen)}")

    def _brief(self, value: object) -> str:
        return shown(value, self.target.secrets, BRIEF)

    async def ended(self, hint: Hint | None = None) -> JSONObject:
        """Return a task that has ended. All checks on this binding share it, because it does not change any more."""
        key = f"ended {self.client.name} {hint}"
        if key not in self.target.memo:
            self.target.memo[key] = await self._ended(hint)
        found: JSONObject = self.target.memo[key]
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
        """Return a new task that waits for input."""
        if self.hints.pause is None:
            raise Skipped(NO_PAUSE)
        task = await self.send(self.hints.pause)
        if state(task) is not TaskState.INPUT_REQUIRED:
            raise Skipped(f"the agent was asked to pause, but the task is {state(task)}")
        return task

    async def slow(self) -> Hint:
        """Return a hint that keeps the agent at work for long enough to be seen."""
        hint = self.hints.slow
        if hint is None:
            raise Skipped(NO_SLOW)
        if "slow_s" not in self.target.memo:
            begun = time.monotonic()
            await self.send(hint)
            self.target.memo["slow_s"] = time.monotonic() - begun
        if self.target.memo["slow_s"] < SLOW_S:
            raise Skipped("the agent was asked to work for long, but was done at once")
        return hint

    async def get(self, task_id: str, client: ConformClient | None = None, **more: Any) -> JSONObject:
        """Read a task as a preparation."""
        return await Case(self.target, client or self.client).prepared("GetTask", {"id": task_id, **more})

    async def until(self, task_id: str, what: str, reached: Callable[[JSONObject], bool]) -> JSONObject:
        """Read a task until a condition holds, and return it. CheckFailed if it does not hold in time."""
        end = time.monotonic() + self.limit
        task: JSONObject = {}
        while time.monotonic() < end:
            task = await self.ok("GetTask", {"id": task_id})
            if reached(task):
                return task
            await asyncio.sleep(POLL_S)
        raise CheckFailed(task, f"the task reaches {what} within {self.limit:g} s")


def state(task: JSONObject) -> TaskState | None:
    try:
        return TaskState(task["status"]["state"])
    except (KeyError, TypeError, ValueError):
        return None


def settled(task: JSONObject) -> bool:
    """Return whether a task has ended or is interrupted."""
    return state(task) in SETTLED


def valid(kind: type[T], value: object, what: str) -> T:
    """Decode a value exactly as the specification has it: camelCase, names of enums, every required field."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise CheckFailed(value, f"{what}: {error}") from None


def same(left: JSONObject, right: JSONObject) -> bool:
    """Compare two tasks. The precision of timestamps and the presence of defaults do not matter."""
    return bool(_normal(left) == _normal(right))


def _normal(task: JSONObject) -> Any:
    try:
        found = msgspec.convert(task, Task)
    except msgspec.ValidationError:
        return task
    found.status.timestamp = (found.status.timestamp or "").rstrip("Z")[:23].rstrip("0").rstrip(".")
    return msgspec.to_builtins(found)


def _named(client: ConformClient, errors: tuple[type[A2AError], ...]) -> str:
    return " or ".join(f"{error.reason} ({client.code(error)})" for error in errors)
