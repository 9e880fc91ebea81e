"""ListTasks while tasks move: a page is sorted and filtered by what it shows (section 3.1.4).

In this process, with a store that lets a task end between the reading of its row and the reading of its body.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from roost import Agent
from roost.engine.ids import now_us, timestamp
from roost.engine.store_types import ListQuery, TaskPage
from roost.host import Host
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from tests.doors.wire import VERSION, sending
from tests.waiting import PATIENCE_S, until


class MovingStore(MemoryStore):
    """Once armed, a listing is answered only after `end` has ended the task that is running."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.end = asyncio.Event()
        self.ended = asyncio.Event()

    async def list_tasks(self, query: ListQuery) -> TaskPage:
        found = await super().list_tasks(query)
        if self.armed:
            self.end.set()
            await self.ended.wait()
        return found


async def next_millisecond() -> None:
    """Wait until the clock shows another time: what is in timestamps."""
    now = timestamp(now_us())
    await until(lambda: timestamp(now_us()) > now)


async def _listed(query: str) -> list[dict[str, Any]]:
    """The tasks listed when the older of two, still WORKING when the store is read, ends later than the other."""
    store = MovingStore()
    agent = Agent("moving", parallel=True)

    @agent.on_message
    async def move(task: Any) -> str:
        if task.text == "slow":
            await store.end.wait()
        return "done"

    host = Host([agent], Settings(), store)
    await host.start()
    transport = httpx.ASGITransport(host)
    async with (
        asyncio.timeout(PATIENCE_S),
        httpx.AsyncClient(transport=transport, base_url="http://localhost/agents/moving", headers=VERSION) as http,
    ):
        slow = sending("slow", configuration={"returnImmediately": True})
        task_id = (await http.post("/message:send", json=slow)).json()["task"]["id"]

        async def is_in(state: str) -> bool:
            return (await http.get(f"/tasks/{task_id}")).json()["status"]["state"] == f"TASK_STATE_{state}"

        await until(lambda: is_in("WORKING"))
        await next_millisecond()
        await http.post("/message:send", json=sending("fast"))
        await next_millisecond()
        store.armed = True
        listing = asyncio.create_task(http.get(f"/tasks?{query}"))
        await until(lambda: is_in("COMPLETED"))
        store.ended.set()
        found: list[dict[str, Any]] = (await listing).json()["tasks"]
    await host.close()
    return found


async def test_a_page_is_sorted_by_the_times_that_it_shows() -> None:
    times = [task["status"]["timestamp"] for task in await _listed("")]
    assert len(times) == 2
    assert times == sorted(times, reverse=True)


async def test_a_page_holds_only_states_that_were_asked_for() -> None:
    states = {task["status"]["state"] for task in await _listed("status=TASK_STATE_WORKING")}
    assert states <= {"TASK_STATE_WORKING"}
