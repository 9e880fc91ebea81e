"""The final reads of a round: every task as a replica shows it when nothing runs any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Any

import httpx

from chaos.fleet_client import DeadlineExceeded, FleetClient, Refused
from chaos.history import SUBMITTED, WORKING, Final, Frame, History, Listed, Refusal, TimedOut
from chaos.texts import AGENTS
from chaos.webhooks import Receiver

CONCURRENCY = 8
POLL_S = 0.2
SETTLE_S = 60.0
"""Seconds to settle: far more than a lease, three attempts and the retries of a webhook take together."""
READ_S = 600.0


async def audit(fleet: FleetClient, rng: Random, receiver: Receiver, history: History) -> None:
    """Wait until nothing runs, read everything, and wait for the last webhook."""
    if not history.timeouts:
        await _wait_until(fleet, lambda: _nothing_runs(fleet, rng))
    fleet.deadline = time.monotonic() + READ_S
    agents: dict[str, str] = {}
    for agent in AGENTS:
        async for task in _list_tasks(fleet, rng, agent):
            agents[task["id"]] = agent
            sent = [message["messageId"] for message in task["history"] if message["role"] == "ROLE_USER"]
            history.listed.append(Listed(task["id"], task["status"]["state"], sent))
    for message_id, task_id in history.acknowledged:
        if message_id in history.sent:
            agents.setdefault(task_id, history.sent[message_id].agent)
    slots = asyncio.Semaphore(CONCURRENCY)

    async def read(task_id: str, agent: str) -> None:
        async with slots:
            try:
                history.finals[task_id] = await _read_final(fleet, Random(task_id), history, agent, task_id)
            except Refused as refused:
                history.refusals.append(Refusal(task_id, refused.request, str(refused)))
            except DeadlineExceeded as error:
                history.timeouts.append(TimedOut(task_id, str(error)))

    async with asyncio.TaskGroup() as group:
        for task_id, agent in agents.items():
            group.create_task(read(task_id, agent))
    await _wait_until(fleet, lambda: _all_delivered(receiver, history))


async def _wait_until(fleet: FleetClient, holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, but not for ever. The checker finds what is still wrong then."""
    fleet.deadline = time.monotonic() + SETTLE_S
    with suppress(DeadlineExceeded):
        while not await holds():
            fleet.check("rest")
            await asyncio.sleep(POLL_S)


async def _nothing_runs(fleet: FleetClient, rng: Random) -> bool:
    for agent in AGENTS:
        for state in (SUBMITTED, WORKING):
            page = await fleet.request(rng, "GET", f"{agent}/tasks?status={state}&pageSize=1", "a listing")
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


async def _list_tasks(fleet: FleetClient, rng: Random, agent: str) -> AsyncIterator[dict[str, Any]]:
    token = ""
    while True:
        page = await fleet.request(rng, "GET", f"{agent}/tasks?pageSize=100&pageToken={token}", "a listing")
        for task in page["tasks"]:
            yield task
        token = page["nextPageToken"]
        if not token:
            return


async def _read_final(fleet: FleetClient, rng: Random, history: History, agent: str, task_id: str) -> Final:
    task = await fleet.request(rng, "GET", f"{agent}/tasks/{task_id}", "a task")
    frames: list[Frame] = []
    while not frames or b'"statusUpdate"' not in frames[-1].data:
        frames.clear()
        fleet.check("a replay")
        try:
            events = fleet.stream(rng, f"{agent}/tasks/{task_id}:subscribe", last=1)
            async with asyncio.timeout(10), aclosing(events):
                async for seq, data in events:
                    if seq is not None:
                        frames.append(Frame(seq, history.intern(task_id, seq, data), 0.0))
        except TimeoutError:
            break  # the task is not over, so its stream stays open
        except httpx.TransportError:
            continue
    return Final(task_id, agent, task["contextId"], task, frames)
