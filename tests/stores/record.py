"""Records a journal for golden/, with the release that this checkout is: python -m tests.stores.record 0.2.0

Serves examples/fleet and an agent that fails, has a task of each kind made through HTTP, kills the
host in the middle of one, and writes what is in the journal then, with the tasks that it holds.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from roost.engine.journal import restore
from roost.engine.store_types import ListQuery, Scope
from roost.engine.views import task_bytes
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore
from tests.processes import FLEET, running

GOLDEN = Path(__file__).parent / "golden"
HEADERS = {"A2A-Version": "1.0"}
FAILS = '''
from roost import Agent

agent = Agent("fails", version="1.0.0")


@agent.on_message
async def fails(task):
    """Emit one piece and fail."""
    yield "before"
    raise RuntimeError("broken")
'''
FILES = [
    {"raw": "AAEC", "filename": "a.bin", "mediaType": "application/octet-stream"},
    {"url": "https://example.com/x"},
    {"data": {"n": 1.5, "big": 12345678901234567890}},
]


class Client:
    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/agents", headers=HEADERS, timeout=30)

    def send(self, agent: str, text: str, wait: bool = True, **fields: Any) -> dict[str, Any]:
        """Return the task, or {} if the response has none."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **fields}
        asked = {"message": message, "configuration": {"returnImmediately": not wait}}
        task: dict[str, Any] = (
            self.http.post(f"/{agent}/message:send", json=asked).raise_for_status().json().get("task")
        )
        return task or {}

    def get(self, agent: str, task_id: str) -> dict[str, Any]:
        task: dict[str, Any] = self.http.get(f"/{agent}/tasks/{task_id}").raise_for_status().json()
        return task

    def wait(self, agent: str, task_id: str, until: Callable[[dict[str, Any]], bool]) -> None:
        while not until(self.get(agent, task_id)):
            time.sleep(0.02)


def make_tasks(client: Client) -> str:
    """Create a task of each kind, and return the id of one that is running."""
    client.send("hello", "Grüße 😀")
    client.send("hello", "again", metadata={"trace": 7})
    client.send("fails", "x")
    client.send("files", "", parts=FILES)
    client.send("stream", "one two three four five")
    client.send("ask", "left waiting")
    asked = client.send("ask", "hi")
    client.send("ask", "Ann", taskId=asked["id"], contextId=asked["contextId"])
    counting = client.send("job", "1000", wait=False)["id"]
    client.wait("job", counting, lambda task: "artifacts" in task)
    client.http.post(f"/job/tasks/{counting}:cancel", json={}).raise_for_status()
    client.send("job", "3")
    client.send("tck", "a direct exchange", messageId="tck-message-response-1")
    asked = client.send("tck", "x", messageId="tck-input-required-1")
    client.send("tck", "y", messageId="tck-input-required-2", taskId=asked["id"])
    client.send("tck", "x", messageId="tck-stream-001-1")
    running = client.send("job", "1000", wait=False)["id"]
    client.wait("job", running, lambda task: "artifacts" in task and len(task["artifacts"][0]["parts"]) > 3)
    return str(running)


async def read(folder: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(folder / "journal.db")) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM tasks ORDER BY id")]
        scopes = [Scope(*row) for row in connection.execute("SELECT tenant, owner, agent FROM scopes ORDER BY id")]
    store = SQLiteStore(folder)
    tasks = {}
    for task_id in ids:
        found = await restore(store, task_id)
        assert found is not None
        tasks[task_id] = json.loads(task_bytes(found.task))
    listings = []
    for scope in scopes:
        found = await store.list_tasks(ListQuery(scope, "", TaskState.UNSPECIFIED, None, None, 1000, False))
        listings.append({"scope": list(scope), "tasks": [stored.new.id for stored in found.tasks]})
    await store.close()
    return {"tasks": tasks, "listings": listings}


def main(release: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fails.py").write_text(FAILS)
        with running(FLEET, folder / "fails.py", data=folder / "data") as server:
            interrupted = make_tasks(Client(server.url))
            server.kill()
        with closing(sqlite3.connect(folder / "data" / "journal.db")) as connection:
            dump = "\n".join(connection.iterdump())
        expected = {**asyncio.run(read(folder / "data")), "interrupted": interrupted}
    (GOLDEN / f"{release}-journal.sql").write_text(f"{dump}\n")
    (GOLDEN / f"{release}-journal.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
