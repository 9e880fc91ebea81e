"""A small A2A host in memory that does everything right, except for one fault. It knows two callers.

Its agent behaves as the profile `tck` says (docs/conform.md); `operations.py` has the operations, `doors.py` serves it.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from roost.protocol.errors import (
    ExtensionSupportRequired,
    IdempotencyKeyReused,
    InvalidParams,
    TaskNotCancelable,
    TaskNotFound,
    TooManyRequests,
    UnsupportedOperation,
)
from tests.conform.broken_card import IDEMPOTENCY, NEEDED, QUIRKS, JSONObject, broken_card

TOKENS = {"token-a": "a", "token-b": "b"}
WORK_S = 0.25
"""Seconds of long work if the caller waits for its end. `roost conform` takes shorter work for none."""
PIECES = 4
RACES = 3
"""The number of the idempotency key that is sent several times at once. The keys before are sent one after another."""
ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED")


def now(world: World) -> str:
    moment = datetime.now(UTC)
    if world.fault == QUIRKS:
        world.ticks += 1
        moment = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(
            milliseconds=world.ticks // 3 * 5
        )
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".") + "Z"
    if world.fault == "timestamp-local":
        return (moment + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%f+01:00")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Stored:
    """A task and all of its events."""

    def __init__(self, task: JSONObject, owner: str) -> None:
        self.task = task
        self.owner = owner
        self.events: list[JSONObject] = [{"task": copy.deepcopy(task)}]
        self.news = asyncio.Condition()
        self.configs: dict[str, JSONObject] = {}
        self.work: asyncio.Task[None] | None = None
        self.asked = asyncio.Event()
        """Set when a request names the task."""
        self.readers = 0
        self.pushes: asyncio.Queue[JSONObject] = asyncio.Queue()

    @property
    def state(self) -> str:
        found: str = self.task["status"]["state"]
        return found

    @property
    def settled(self) -> bool:
        return self.state in (*ENDED, "TASK_STATE_INPUT_REQUIRED")

    async def settle(self) -> None:
        async with self.news:
            await self.news.wait_for(lambda: self.settled)

    async def until_asked(self) -> None:
        """Wait for the next request that names the task."""
        self.asked.clear()
        await self.asked.wait()


class World:
    """One host with one fault. `bindings` is rest, rpc or both."""

    def __init__(self, fault: str, bindings: str, base: str) -> None:
        self.fault = fault
        self.bindings = bindings
        self.base = base
        self.tasks: dict[str, Stored] = {}
        self.keys: dict[str, tuple[str, str]] = {}
        self.racing: dict[str, int] = {}
        self.raced = asyncio.Event()
        self.streams = 0
        self.sends = 0
        self.fetched = 0
        self.ticks = 0
        self.pusher = httpx.AsyncClient(timeout=None, verify=False)
        self.background: set[asyncio.Task[None]] = set()

    def card(self) -> JSONObject:
        return broken_card(self.fault, self.bindings, self.base)

    def find(self, task_id: str, owner: str, door: str = "") -> Stored:
        stored = self.tasks.get(task_id)
        if stored is None or (stored.owner != owner and self.fault != f"other-{door}"):
            if self.fault == f"code-{door}" and owner == "a" and not task_id.startswith("none-"):
                raise InvalidParams("what a strange id", field="id")
            raise TaskNotFound(f"there is no task {task_id}")
        stored.asked.set()
        return stored

    # SendMessage

    async def send(self, params: JSONObject, owner: str, extensions: str, *, waits: bool) -> Stored | JSONObject:
        """Return the task, which is at work, or a direct answer. `waits`: the caller waits for the end of the task."""
        self._count()
        if self.fault == "required-enforced" and NEEDED not in extensions:
            raise ExtensionSupportRequired
        message = params.get("message")
        if not isinstance(message, dict):
            raise InvalidParams("message is missing", field="message")
        parts = message.get("parts")
        if not isinstance(parts, list):
            if self.fault == "types-500":
                raise RuntimeError
            raise InvalidParams("parts must be a list", field="message.parts")
        if not parts and self.fault != "parts-empty":
            raise InvalidParams("parts must not be empty", field="message.parts")
        if self.fault == "field-unknown" and "ofAnotherVersion" in message:
            raise InvalidParams("I do not know this", field="message.ofAnotherVersion")
        key = f"{owner} {message['messageId']}"
        if IDEMPOTENCY in extensions and (found := await self._replayed(key, params)) is not None:
            return found
        stored = await self._accept(message, params.get("configuration") or {}, owner, waits)
        if isinstance(stored, Stored) and IDEMPOTENCY in extensions:
            self.keys[key] = fingerprint(params), stored.task["id"]
        return stored

    def _count(self) -> None:
        self.sends += 1
        if self.fault == "first-race" and 1 < self.sends <= 8:
            raise RuntimeError
        if self.fault == "limited" or (self.fault == QUIRKS and 1 < self.sends <= 8):
            raise TooManyRequests

    async def _replayed(self, key: str, params: JSONObject) -> Stored | None:
        if key not in self.keys:
            if self.fault == "idempotency-race":
                await self._race(key)
            return None
        known, task_id = self.keys[key]
        if known != fingerprint(params):
            if self.fault == "idempotency-body":
                return self.tasks[task_id]
            raise IdempotencyKeyReused
        return None if self.fault == "idempotency-twice" else self.tasks[task_id]

    async def _race(self, key: str) -> None:
        """Wait until a second caller has found that the key is not recorded yet."""
        self.racing[key] = self.racing.get(key, 0) + 1
        if len(self.racing) == RACES:
            if self.racing[key] > 1:
                self.raced.set()
            await self.raced.wait()

    async def _accept(
        self, message: JSONObject, configuration: JSONObject, owner: str, waits: bool
    ) -> Stored | JSONObject:
        prefix = message["messageId"]
        if message.get("taskId"):
            known = message["taskId"] in self.tasks
            if known or self.fault != "task-invented":
                return await self._follow_up(message, owner)
        context = message.get("contextId") or str(uuid.uuid4())
        if self.fault == "context-replaced":
            context = str(uuid.uuid4())
        if prefix.startswith("tck-message-response"):
            said = {"messageId": str(uuid.uuid4()), "role": "ROLE_AGENT", "parts": [{"text": "Direct"}]}
            return said if self.fault == QUIRKS else {**said, "contextId": context}
        status = {"state": "TASK_STATE_SUBMITTED", "timestamp": now(self)}
        sent = {**message, "contextId": context}
        stored = Stored({"id": str(uuid.uuid4()), "contextId": context, "status": status, "history": [sent]}, owner)
        self.tasks[stored.task["id"]] = stored
        config = configuration.get("taskPushNotificationConfig")
        if config:
            self.configure(stored, config)
        self.begin(self._push(stored))
        stored.work = self.begin(self._work(stored, prefix, waits))
        return stored

    async def _follow_up(self, message: JSONObject, owner: str) -> Stored:
        stored = self.find(message["taskId"], owner, "send")
        if stored.owner != owner:
            return stored
        if stored.state in ENDED:
            if self.fault == "ended-accepts":
                return stored
            raise UnsupportedOperation("the task is over")
        mine = stored.task["contextId"]
        if message.get("contextId", mine) != mine and self.fault != "context-mismatch":
            raise InvalidParams("that is not the task's context", field="message.contextId")
        context = str(uuid.uuid4()) if self.fault == "follow-up-context" and "contextId" not in message else mine
        stored.task["history"].append({**message, "contextId": context})
        if self.fault != "answer-lost" or stored.readers or "contextId" not in message:
            await self.emit(stored, "TASK_STATE_WORKING")
            stored.work = self.begin(self._work(stored, message["messageId"], waits=True))
        return stored

    def begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    # The agent

    async def _work(self, stored: Stored, prefix: str, waits: bool) -> None:
        await self.emit(stored, "TASK_STATE_WORKING")
        if prefix.startswith("tck-input-required"):
            await self.emit(stored, "TASK_STATE_INPUT_REQUIRED")
            return
        if prefix.startswith("tck-long-running"):
            await self._long_work(stored, waits)
        elif prefix.startswith("tck-stream"):
            for word in ("one ", "two ", "three"):
                await self.piece(stored, word)
        elif prefix.startswith("tck-artifact") and self.fault != QUIRKS:
            await self.piece(stored, "Generated text content")
        await self.emit(stored, "TASK_STATE_COMPLETED")

    async def _long_work(self, stored: Stored, waits: bool) -> None:
        """Work until the client has seen the task at work, however slow the machine is.

        A client that does not wait for the end shows with its next request that it knows the task. A task that works on
        although it was canceled waits for one more request, so that the client sees it canceled first.
        """
        await self.piece(stored, "0 ")
        if waits:
            await asyncio.sleep(WORK_S)
        else:
            await stored.until_asked()
        if stored.state in ENDED:
            await stored.until_asked()
        while self.fault == "reader-left" and stored.readers:
            await stored.until_asked()
        for number in range(1, PIECES):
            await self.piece(stored, f"{number} ")

    async def emit(self, stored: Stored, state: str) -> None:
        if stored.state in ENDED and self.fault != "cancel-overwritten":
            return
        stored.task["status"] = {"state": state, "timestamp": now(self)}
        await self._tell(stored, {"statusUpdate": {**self._of(stored), "status": dict(stored.task["status"])}})

    async def piece(self, stored: Stored, text: str) -> None:
        if stored.state in ENDED and self.fault != "cancel-works-on":
            return
        artifacts = stored.task.setdefault("artifacts", [])
        append = bool(artifacts)
        part = {"data": {"said": text}, "filename": ""} if self.fault == QUIRKS else {"text": text}
        if append:
            artifacts[0]["parts"].append(part)
        else:
            artifacts.append({"artifactId": "output", "parts": [part]})
        artifact = {"artifactId": "output", "parts": [part]}
        await self._tell(stored, {"artifactUpdate": {**self._of(stored), "artifact": artifact, "append": append}})

    def _of(self, stored: Stored) -> JSONObject:
        return {"taskId": stored.task["id"], "contextId": stored.task["contextId"]}

    async def _tell(self, stored: Stored, event: JSONObject) -> None:
        if self.fault == "push-slow" and stored.configs:
            await self._deliver(stored, event)
        else:
            stored.pushes.put_nowait(event)
        async with stored.news:
            stored.events.append(event)
            stored.news.notify_all()

    async def cancel(self, task_id: str, owner: str) -> JSONObject:
        stored = self.find(task_id, owner, "cancel")
        if stored.owner != owner:
            return stored.task
        if stored.state in ENDED:
            if self.fault == "cancel-ended":
                return stored.task
            raise TaskNotCancelable
        if self.fault == "cancel-ignored" and stored.state == "TASK_STATE_INPUT_REQUIRED":
            return stored.task
        if stored.work and self.fault not in ("cancel-overwritten", "cancel-works-on"):
            stored.work.cancel()
        await self.emit(stored, "TASK_STATE_CANCELED")
        return stored.task

    # Push

    def configure(self, stored: Stored, config: JSONObject) -> JSONObject:
        if self.fault == "push-500":
            raise RuntimeError
        host = httpx.URL(config["url"]).host
        if host not in ("127.0.0.1", "example.com") and self.fault != "push-anywhere":
            raise InvalidParams(f"no webhooks at {host}", field="url")
        made = {**config, "id": config.get("id") or str(uuid.uuid4()), "taskId": stored.task["id"]}
        stored.configs[made["id"]] = made
        return made

    async def _push(self, stored: Stored) -> None:
        while True:
            event = await stored.pushes.get()
            await self._deliver(stored, event)

    async def _deliver(self, stored: Stored, event: JSONObject) -> None:
        state = event.get("statusUpdate", {}).get("status", {}).get("state")
        if self.fault == "push-never" or (self.fault == "push-no-end" and state in ENDED):
            return
        if self.fault == "push-two":
            event = {**event, "task": stored.task}
        if self.fault == "push-bare":
            event = copy.deepcopy(stored.task)
        sent = [event]
        if self.fault == "push-order" and state in ENDED:
            again = {**self._of(stored), "status": {"state": "TASK_STATE_SUBMITTED"}}
            sent = [{"statusUpdate": again}, event]
        for config in [*stored.configs.values()]:
            if "127.0.0.1" not in config["url"]:
                continue
            headers = {"Authorization": f"Bearer {config.get('authentication', {}).get('credentials')}"}
            headers["X-A2A-Notification-Token"] = config.get("token", "")
            if self.fault == "push-token":
                del headers["X-A2A-Notification-Token"]
            if self.fault == "push-credentials":
                del headers["Authorization"]
            for one in sent:
                try:
                    await self.pusher.post(config["url"], json=one, headers=headers)
                except httpx.HTTPError:
                    return

    # Streams

    async def follow(
        self, stored: Stored, start: int, task: JSONObject | None = None
    ) -> AsyncIterator[tuple[int | None, JSONObject]]:
        """Yield the events from a position to the end of the task, after a snapshot of the task if there is one."""
        position = start
        stored.readers += 1
        self.streams += 1
        try:
            if task is not None:
                yield None, {"task": task}
            while True:
                async with stored.news:
                    while len(stored.events) <= position and stored.state not in ENDED:
                        await stored.news.wait()
                    found = stored.events[position:]
                for event in found:
                    position += 1
                    yield position, event
                if stored.state in ENDED and position == len(stored.events):
                    return
        finally:
            stored.readers -= 1
            self.streams -= 1


def fingerprint(params: JSONObject) -> str:
    message = {name: value for name, value in params["message"].items() if name != "messageId"}
    return hashlib.sha256(json.dumps({**params, "message": message}, sort_keys=True).encode()).hexdigest()
