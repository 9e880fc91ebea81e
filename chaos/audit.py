"""The last readings of a round: when nothing runs any more, every task as any replica shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Any

import httpx

from chaos.door import Door, GaveUp, Refused
from chaos.history import SUBMITTED, WORKING, Final, Frame, GivenUp, History, Listed, Refusal
from chaos.webhooks import Receiver
from chaos.words import AGENTS

AT_ONCE = 8
LOOK_S = 0.2
SETTLE_S = 60.0
"""Far more than a lease, three attempts with their pauses, and the retries of a webhook take together."""
READ_S = 600.0


async def audit(door: Door, chance: Random, receiver: Receiver, history: History) -> None:
    """Wait until nothing runs, read everything, and wait for the last webhook."""
    if not history.given_up:
        await _settled(door, lambda: _nothing_runs(door, chance))
    door.until = time.monotonic() + READ_S
    agents: dict[str, str] = {}
    for agent in AGENTS:
        async for task in _listed(door, chance, agent):
            agents[task["id"]] = agent
            sent = [message["messageId"] for message in task["history"] if message["role"] == "ROLE_USER"]
            history.listed.append(Listed(task["id"], task["status"]["state"], sent))
    for message_id, task_id in history.acknowledged:
        if message_id in history.sent:
            agents.setdefault(task_id, history.sent[message_id].agent)
    waiting = asyncio.Semaphore(AT_ONCE)

    async def read(task_id: str, agent: str) -> None:
        async with waiting:
            try:
                history.finals[task_id] = await _final(door, Random(task_id), history, agent, task_id)
            except Refused as refused:
                history.refusals.append(Refusal(task_id, refused.request, str(refused)))
            except GaveUp as error:
                history.given_up.append(GivenUp(task_id, str(error)))

    async with asyncio.TaskGroup() as group:
        for task_id, agent in agents.items():
            group.create_task(read(task_id, agent))
    await _settled(door, lambda: _all_delivered(receiver, history))


async def _settled(door: Door, holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait, but not for ever: what is still amiss then is for the checker to find."""
    door.until = time.monotonic() + SETTLE_S
    with suppress(GaveUp):
        while not await holds():
            door.check("rest")
            await asyncio.sleep(LOOK_S)


async def _nothing_runs(door: Door, chance: Random) -> bool:
    for agent in AGENTS:
        for state in (SUBMITTED, WORKING):
            page = await door.ask(chance, "GET", f"{agent}/tasks?status={state}&pageSize=1", "a listing")
            if page["totalSize"]:
                return False
    return True


async def _all_delivered(receiver: Receiver, history: History) -> bool:
    hooked = {message_id for message_id, sent in history.sent.items() if sent.webhook}
    ends = {
        (message_id, history.finals[task_id].frames[-1].data)
        for message_id, task_id in history.acknowledged
        if message_id in hooked and task_id in history.finals and history.finals[task_id].frames
    }
    return ends <= receiver.accepted


async def _listed(door: Door, chance: Random, agent: str) -> AsyncIterator[dict[str, Any]]:
    token = ""
    while True:
        page = await door.ask(chance, "GET", f"{agent}/tasks?pageSize=100&pageToken={token}", "a listing")
        for task in page["tasks"]:
            yield task
        token = page["nextPageToken"]
        if not token:
            return


async def _final(door: Door, chance: Random, history: History, agent: str, task_id: str) -> Final:
    task = await door.ask(chance, "GET", f"{agent}/tasks/{task_id}", "a task")
    frames: list[Frame] = []
    while not frames or b'"statusUpdate"' not in frames[-1].data:
        frames.clear()
        door.check("a replay")
        try:
            events = door.stream(chance, f"{agent}/tasks/{task_id}:subscribe", last=1)
            async with asyncio.timeout(10), aclosing(events):
                async for seq, data in events:
                    if seq is not None:
                        frames.append(Frame(seq, history.one(task_id, seq, data), 0.0))
        except TimeoutError:
            break  # it is not over: its stream stays open
        except httpx.TransportError:
            continue
    return Final(task_id, agent, task["contextId"], task, frames)
