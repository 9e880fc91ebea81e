"""The writer in a process of its own: it ends with the host, and the host survives its death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roost.engine.store_types import StoreUnavailable
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_process import WriterProcess
from tests.waiting import until

from .samples import creation

HOLD = """
import asyncio, sys
from pathlib import Path
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import WriterProcess
from tests.stores.samples import creation

async def main():
    store = SQLiteStore(Path(sys.argv[1]), WriterProcess)
    await store.commit([creation("kept")])
    print(store.writer.process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path, WriterProcess)
    yield made
    await made.close()


def _pid(store: SQLiteStore) -> int:
    assert isinstance(store.writer, WriterProcess)
    assert store.writer.process is not None
    return store.writer.process.pid


async def test_a_writer_that_is_killed_refuses_once_and_is_replaced(store: SQLiteStore) -> None:
    await store.commit([creation("before")])
    os.kill(_pid(store), signal.SIGKILL)
    with pytest.raises(StoreUnavailable, match="gone"):
        await _commit_until_it_fails(store)
    await store.commit([creation("after")])
    assert await store.read_task("before") is not None
    assert await store.read_task("after") is not None


async def test_the_first_commits_of_all_may_come_together(store: SQLiteStore) -> None:
    await asyncio.gather(*(store.commit([creation(f"task {number}")]) for number in range(10)))
    assert all([await store.read_task(f"task {number}") for number in range(10)])


async def test_signals_for_the_host_do_not_end_the_writer(store: SQLiteStore) -> None:
    await store.commit([creation("before")])
    os.kill(_pid(store), signal.SIGINT)
    os.kill(_pid(store), signal.SIGTERM)
    await store.commit([creation("after")])
    assert await store.read_task("after") is not None


async def test_the_writer_ends_with_a_host_that_is_killed_and_then_the_folder_is_free(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        writer = int(await asyncio.to_thread(host.stdout.readline))
        with pytest.raises(StoreInUse):
            SQLiteStore(tmp_path)
        host.kill()
    next_host = SQLiteStore(tmp_path, WriterProcess)
    assert await next_host.read_task("kept") is not None
    await until(lambda: not _alive(writer))
    await next_host.close()


async def _commit_until_it_fails(store: SQLiteStore) -> None:
    for number in range(1000):
        await store.commit([creation(f"meanwhile {number}")])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
