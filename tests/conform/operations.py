"""The operations of the broken host, for both bindings."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from roost.protocol.errors import (
    InvalidParams,
    MethodNotFound,
    PushNotificationNotSupported,
    TaskNotFound,
    UnsupportedOperation,
)
from tests.conform.broken import ENDED, Stored, World
from tests.conform.broken_card import QUIRKS, RESUME, JSONObject

Events = AsyncIterator[tuple[int | None, JSONObject]]

TASK = {"task": {"id": "beside", "contextId": "it", "status": {"state": "TASK_STATE_COMPLETED"}}}
STREAMS = ("SendStreamingMessage", "SubscribeToTask")


class Call:
    """One call of one caller."""

    def __init__(self, world: World, owner: str, params: JSONObject, headers: dict[str, str], door: str) -> None:
        self.world = world
        self.fault = world.fault
        self.owner = owner
        self.params = params
        self.headers = headers
        self.door = door

    async def answer(self, operation: str) -> JSONObject:
        operations: dict[str, Any] = {
            "SendMessage": self.send,
            "GetTask": self.get,
            "ListTasks": self.list,
            "CancelTask": self.cancel,
            "CreateTaskPushNotificationConfig": self.create,
            "GetTaskPushNotificationConfig": self.config,
            "ListTaskPushNotificationConfigs": self.configs,
            "DeleteTaskPushNotificationConfig": self.delete,
            "GetExtendedAgentCard": self.extended,
        }
        if operation not in operations:
            raise MethodNotFound
        if self.fault == "push-undeclared" and operation.endswith(("CreateTaskPushNotificationConfig", "Configs")):
            raise PushNotificationNotSupported
        found: JSONObject = await operations[operation]()
        return found

    async def send(self) -> JSONObject:
        extensions = self.headers.get("a2a-extensions", "")
        if self.fault == "extension-unknown" and "urn:example:unknown" in extensions:
            raise InvalidParams("I do not know this extension")
        configuration = self.params.get("configuration") or {}
        waits = not configuration.get("returnImmediately") or self.fault == "send-blocks"
        stored = await self.world.send(self.params, self.owner, extensions, waits=waits)
        if not isinstance(stored, Stored):
            return {"message": stored, **(TASK if self.fault == "direct-task" else {})}
        message = self.params["message"]
        plain = message["messageId"].startswith("tck-complete-task") and not configuration
        slow = message["messageId"].startswith("tck-long-running")
        if self.fault == "send-early" and slow and "returnImmediately" in configuration:
            return {"task": shown(stored)}
        if waits:
            await stored.settle()
        task = shown(stored, None if self.fault == "send-history" else configuration.get("historyLength"))
        if self.fault == "send-two" and plain and "contextId" not in message:
            return {"task": task, "message": {"messageId": "x", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}
        if self.fault == "context-none" and plain and not {"contextId", "taskId"} & message.keys():
            del task["contextId"]
        if self.fault == QUIRKS:
            task.setdefault("artifacts", [])
        return {"task": task}

    async def get(self) -> JSONObject:
        stored = self.world.find(self.params["id"], self.owner, "get")
        length = self.params.get("historyLength")
        if length is not None and int(length) < 0:
            if self.fault == "history-negative":
                return shown(stored)
            raise InvalidParams("historyLength must not be negative", field="historyLength")
        length = None if length is None else int(length)
        if self.fault == "history-ignored":
            length = None
        task = shown(stored, length)
        if self.fault == "history-truncates" and length is not None:
            stored.task["history"] = task.get("history", [])
        if self.fault == "get-artifacts" and stored.task["history"][0]["messageId"].startswith("tck-artifact"):
            task.pop("artifacts", None)
        if self.fault == "across" and self.door == "HTTP+JSON":
            task["metadata"] = {"only": "here"}
        return task

    async def list(self) -> JSONObject:
        params = self.params
        all_of_them = self.fault == ("other-list" if "contextId" in params else "other-everything")
        tasks = [one for one in self.world.tasks.values() if one.owner == self.owner or all_of_them]
        if params.get("contextId"):
            tasks = [one for one in tasks if one.task["contextId"] == params["contextId"]]
        if params.get("status") and self.fault != "list-status":
            tasks = [one for one in tasks if one.state == params["status"]]
        tasks.sort(key=lambda one: datetime.fromisoformat(one.task["status"]["timestamp"]), reverse=True)
        total = len(tasks)
        token = params.get("pageToken", "")
        if token and not token.isdigit() and self.fault != "list-token":
            raise InvalidParams("what a strange token", field="pageToken")
        start = int(token) if token.isdigit() else 0
        size = int(params.get("pageSize", 50))
        page = [shown(one) for one in tasks[start : start + size]]
        if str(params.get("includeArtifacts", "false")).lower() != "true" and self.fault != "list-artifacts":
            for one in page:
                one.pop("artifacts", None)
        if self.fault == "list-order" and "pageSize" not in params:
            page.reverse()
        if self.fault == "list-others" and page and not {"status", "includeArtifacts", "pageSize"} & params.keys():
            page.insert(0, {**page[0], "id": str(uuid.uuid4())})
        following = start + size + (1 if self.fault == "list-skips" else 0)
        more = following < total or (self.fault == "list-endless" and "pageSize" in params)
        found: JSONObject = {"tasks": page, "pageSize": size, "totalSize": total}
        if more or self.fault != "list-shape":
            found["nextPageToken"] = str(following % max(total, 1)) if more else ""
        return found

    async def cancel(self) -> JSONObject:
        return copy.deepcopy(await self.world.cancel(self.params["id"], self.owner))

    async def extended(self) -> JSONObject:
        if self.fault in ("extended-undeclared", "extended-open"):
            return self.world.card()
        raise UnsupportedOperation

    async def create(self) -> JSONObject:
        if self.fault == "push-unknown" and self.params["taskId"] not in self.world.tasks:
            return {**self.params, "id": "1"}
        made = dict(self.world.configure(self._task(), self.params))
        if self.fault == "push-no-id" and made.get("token"):
            del made["id"]
        return made

    async def config(self) -> JSONObject:
        found = self._task().configs.get(self.params["id"])
        if found is None:
            raise TaskNotFound("there is no such config")
        return found

    async def configs(self) -> JSONObject:
        found = self._task().configs.values()
        return {"configs": [] if self.fault == "push-list" else [*found]}

    async def delete(self) -> JSONObject:
        if self.fault != "push-delete":
            self._task().configs.pop(self.params["id"], None)
        return {}

    def _task(self) -> Stored:
        return self.world.find(self.params["taskId"], self.owner, "push")

    # Streams

    async def stream(self, operation: str) -> Events:
        if operation == "SubscribeToTask":
            return await self._subscribe()
        prefix = str(self.params.get("message", {}).get("messageId"))
        if self.fault == "stream-refused" and prefix.startswith("tck-complete-task"):
            raise UnsupportedOperation
        if self.fault == "stream-empty" and prefix.startswith("tck-long-running"):
            return _none()
        extensions, waits = self.headers.get("a2a-extensions", ""), self.fault == "stream-buffered"
        stored = await self.world.send(self.params, self.owner, extensions, waits=waits)
        if not isinstance(stored, Stored):
            return _one({"message": stored}, twice=self.fault == "direct-twice")
        events = self.world.follow(stored, 0)
        if self.fault == "stream-buffered":
            await stored.settle()
        return self._spoiled(stored, self._until_paused(stored, events))

    async def _subscribe(self) -> Events:
        stored = self.world.find(self.params["id"], self.owner, "subscribe")
        last = self.headers.get("last-event-id")
        if last is not None and RESUME in str(self.world.card()["capabilities"]):
            return self._resumed(stored, int(last))
        if stored.state in ENDED:
            if self.fault == "subscribe-hangs":
                await asyncio.sleep(3600)
            raise UnsupportedOperation("the task is over")
        start = len(stored.events)
        task = copy.deepcopy(stored.task)
        if self.fault == "subscribe-loses" and stored.state == "TASK_STATE_WORKING":
            task.pop("artifacts", None)
        if self.fault == "subscribe-update" and stored.state == "TASK_STATE_INPUT_REQUIRED":
            return self.world.follow(stored, start - 1)
        events = self.world.follow(stored, start, task)
        paused = stored.state == "TASK_STATE_INPUT_REQUIRED"
        return _without_one(events) if self.fault == "subscribe-differs" and stored.readers and paused else events

    def _resumed(self, stored: Stored, last: int) -> Events:
        if last > len(stored.events):
            if self.fault != "resume-beyond":
                raise InvalidParams("there is no such event", field="Last-Event-ID")
            last = len(stored.events)
        return self.world.follow(stored, last + (1 if self.fault == "resume-gap" else 0), copy.deepcopy(stored.task))

    async def _until_paused(self, stored: Stored, events: Events) -> Events:
        """End the stream of a message when its task is interrupted."""
        whole = False
        try:
            async for position, event in events:
                yield position, event
                if stored.state == "TASK_STATE_INPUT_REQUIRED" and position == len(stored.events):
                    if self.fault == "paused-open":
                        continue
                    whole = True
                    return
            whole = True
        finally:
            if self.fault == "reader-left" and not whole:
                if stored.work:
                    stored.work.cancel()
                self.world.begin(self.world.emit(stored, "TASK_STATE_FAILED"))

    async def _spoiled(self, stored: Stored, events: Events) -> Events:
        fault, configured = self.fault, "configuration" in self.params
        spoiled = False
        async for position, event in events:
            kind = next(iter(event))
            state = event.get("statusUpdate", {}).get("status", {}).get("state")
            if fault == "order-update-first" and kind == "task":
                continue
            if fault == "event-lost" and kind == "artifactUpdate" and not spoiled:
                spoiled = True
                event = {**event, "artifactUpdate": {**event["artifactUpdate"]}}
                if event["artifactUpdate"]["append"] is False:
                    yield position, event
                    spoiled = False
                    fault = "event-lost-next"
                continue
            if fault == "event-lost-next" and kind == "artifactUpdate":
                fault = ""
                continue
            if fault == "stream-unfinished" and state in ENDED:
                return
            if fault == "states-back" and state in ENDED:
                back = {**event["statusUpdate"], "status": {"state": "TASK_STATE_SUBMITTED"}}
                yield position, {"statusUpdate": back}
            if fault == "order-context" and state in ENDED:
                event = {"statusUpdate": {**event["statusUpdate"], "contextId": str(uuid.uuid4())}}
            yield position, event
            if fault == "event-twice" and kind == "artifactUpdate" and event["artifactUpdate"]["append"]:
                yield position, event
        if fault == "stream-endless" and not configured:
            await asyncio.sleep(3600)


async def _none() -> Events:
    return
    yield


async def _one(event: JSONObject, *, twice: bool) -> Events:
    yield 1, event
    if twice:
        yield 2, event


async def _without_one(events: Events) -> Events:
    count = 0
    async for position, event in events:
        count += 1
        if count != 2:
            yield position, event


def shown(stored: Stored, length: int | None = None) -> JSONObject:
    task = copy.deepcopy(stored.task)
    if length is not None:
        task["history"] = task["history"][-length:] if length else []
        if not length:
            del task["history"]
    return task
