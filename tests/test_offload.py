"""Jobs run in worker processes: one per owner at a time, and whatever becomes of a process, the pool goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roost import offload
from roost.offload import JobFailed, WorkerPool
from roost.protocol.errors import InvalidParams, Unavailable
from tests.waiting import until


def joined(left: bytes, right: str, number: int) -> bytes:
    return left + right.encode() * number


def refuses(field: str) -> bytes:
    raise InvalidParams(f"{field} is wrong", field=field, metadata={"a": "b"})


def fails() -> bytes:
    raise RuntimeError("a fault of ours")


def pid_after(gate: str, note: str) -> bytes:
    """Write the pid into `note`, and return it when `gate` exists."""
    Path(note).write_text(str(os.getpid()))
    while not Path(gate).exists():
        pass
    return str(os.getpid()).encode()


def pid() -> bytes:
    return str(os.getpid()).encode()


def grows() -> bytes:
    kept = bytearray(os.urandom(1)) * (offload.KEPT_BYTES + 1)
    globals()["_kept"] = kept
    return pid()


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    made = WorkerPool()
    yield made
    await made.close()


async def test_a_job_runs_in_another_process_with_its_arguments(pool: WorkerPool) -> None:
    assert await pool.run("a", joined, b"\xff\0", "x", 3) == b"\xff\0xxx"
    assert await pool.run("a", pid) != str(os.getpid()).encode()


async def test_an_error_of_the_protocol_is_raised_here_as_it_was_there(pool: WorkerPool) -> None:
    with pytest.raises(InvalidParams, match=r"message\.parts is wrong") as raised:
        await pool.run("a", refuses, "message.parts")
    assert (raised.value.field, raised.value.metadata) == ("message.parts", {"a": "b"})


async def test_another_error_carries_its_traceback_and_the_process_goes_on(pool: WorkerPool) -> None:
    first = await pool.run("a", pid)
    with pytest.raises(JobFailed, match="a fault of ours"):
        await pool.run("a", fails)
    assert await pool.run("a", pid) == first


async def test_jobs_of_one_owner_run_one_after_the_other_and_others_do_not_wait(
    pool: WorkerPool, tmp_path: Path
) -> None:
    gate, note = tmp_path / "gate", tmp_path / "note"
    held = asyncio.create_task(pool.run("a", pid_after, str(gate), str(note)))
    await until(note.exists)
    second = asyncio.create_task(pool.run("a", pid))
    assert await pool.run("b", pid)
    assert not second.done()
    gate.touch()
    assert await held
    assert await second


async def test_a_process_that_dies_fails_its_job_only(pool: WorkerPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    held = asyncio.create_task(pool.run("a", pid_after, str(tmp_path / "never"), str(note)))
    await until(lambda: note.exists() and note.read_text())
    os.kill(int(note.read_text()), signal.SIGKILL)
    with pytest.raises(Unavailable):
        await held
    assert await pool.run("a", pid)


async def test_a_job_that_takes_too_long_is_stopped(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pool.run("a", pid)
    monkeypatch.setattr(offload, "JOB_S", 0.01)
    with pytest.raises(InvalidParams, match="longer than"):
        await pool.run("a", pid_after, str(tmp_path / "never"), str(tmp_path / "note"))
    monkeypatch.undo()
    assert await pool.run("a", pid)


async def test_the_job_of_a_caller_who_left_is_stopped(pool: WorkerPool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    held = asyncio.create_task(pool.run("a", pid_after, str(tmp_path / "never"), str(note)))
    await until(lambda: note.exists() and note.read_text())
    held.cancel()
    await asyncio.wait([held])
    worker = Path(f"/proc/{note.read_text()}")
    await until(lambda: not worker.exists())
    assert await pool.run("a", pid)


async def test_all_jobs_of_an_owner_are_done_however_many_wait(pool: WorkerPool) -> None:
    assert len(await asyncio.gather(*(pool.run("a", pid) for _ in range(200)))) == 200


async def test_a_process_that_has_grown_ends_after_its_job(pool: WorkerPool) -> None:
    grown = Path(f"/proc/{(await pool.run('a', grows)).decode()}")
    await until(lambda: not grown.exists())
    assert await pool.run("a", pid)


async def test_an_idle_process_ends(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "IDLE_S", 0.0)
    worker = Path(f"/proc/{(await pool.run('a', pid)).decode()}")
    await until(lambda: not worker.exists())
    assert await pool.run("a", pid)


async def test_a_closed_pool_ends_its_processes_and_takes_no_job(pool: WorkerPool) -> None:
    worker = Path(f"/proc/{(await pool.run('a', pid)).decode()}")
    await pool.close()
    await until(lambda: not worker.exists())
    with pytest.raises(Unavailable):
        await pool.run("a", pid)
