"""Bundles of a long journal: how fast they are written and verified, and how much memory that takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.bench import Bench, Outcome, Row, Series, WrongAnswer, row
from benchmarks.evidence_work import Done, Job
from benchmarks.servers import ROOT
from benchmarks.stats import AtLeast, AtMost
from roost.engine.ids import new_id
from roost.engine.store_types import Append, NewTask, Scope, TaskHead
from roost.protocol.entries import ARTIFACT, MESSAGE, NO_CHAIN, STATUS, Entry, link
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore

EVENTS, LONG, QUICK = 100_000, 1_000_000, 2_000
PER_TASK = 100
START_US = 1_790_000_000_000_000
ENCODERS = {"rfc8785": AtLeast(5_000, 5_000), "msgspec where it is proven equal": AtLeast(5_000, 20_000)}


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("evidence")
    count = QUICK if bench.quick else EVENTS
    bench.say(f"  writing {count:,} events")
    asyncio.run(_fill(folder / "journal", count))
    speeds: dict[tuple[str, str], list[float]] = {}
    memory: dict[str, list[float]] = {}
    for _ in bench.each_round():
        for encoder in ENCODERS:
            for work in ("export", "verify"):
                done = _do(folder, work, encoder == "rfc8785", count)
                speeds.setdefault((work, encoder), []).append(done.events / done.seconds)
                memory.setdefault(work, []).append(done.peak_mb - done.before_mb)
                bench.say(f"    {work}, {encoder}: {done.events / done.seconds:,.0f} events/s")
    rows = [
        row(f"{work} of {count:,} events, canonical JSON by {encoder}", ENCODERS[encoder], values, unit="events/s")
        for (work, encoder), values in speeds.items()
    ]
    return Outcome(rows + _memory_rows(bench, folder, memory), _series(speeds))


def _memory_rows(bench: Bench, folder: Path, memory: dict[str, list[float]]) -> list[Row]:
    """Measure the memory with ten times the events, which must not need more of it."""
    large = QUICK if bench.quick else LONG
    if not bench.quick:
        bench.say(f"  writing {large:,} events")
        asyncio.run(_fill(folder / "journal", large - EVENTS))
    rows = []
    for work, values in memory.items():
        done = _do(folder, work, False, large)
        grown = done.peak_mb - done.before_mb
        rows.append(
            row(
                f"memory that {work} of {large:,} events takes",
                AtMost(64, "MB"),
                [grown],
                unit="MB",
                note=f"{max(values):.0f} MB for {EVENTS:,} events",
            )
        )
    return rows


def _series(speeds: dict[tuple[str, str], list[float]]) -> list[Series]:
    return [Series(work, encoder, "events/s", values, drawn=False) for (work, encoder), values in speeds.items()]


def _do(folder: Path, work: str, rfc8785: bool, count: int) -> Done:
    job = Job(work, str(folder / "journal"), str(folder / "bundle.tar.gz"), rfc8785)
    command = [sys.executable, "-m", "benchmarks.evidence_work"]
    done = subprocess.run(command, cwd=ROOT, input=msgspec.json.encode(job), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise WrongAnswer(f"{work} failed; see its traceback above")
    result = msgspec.json.decode(done.stdout, type=Done)
    if result.events != count:
        raise WrongAnswer(f"{work} had {result.events} events, expected {count}")
    return result


async def _fill(folder: Path, count: int) -> None:
    """Write tasks that stream their text in pieces, each with a hash chain of its own."""
    store = SQLiteStore(folder)
    await store.open()
    for _ in range(count // PER_TASK):
        new = NewTask(new_id(), Scope("default", "roost:bench", "bench"), new_id(), START_US)
        head = TaskHead(TaskState.COMPLETED, START_US // 1000, None, 1, False)
        await store.commit([Append(new.id, 1, _entries(new), new, head)])
    await store.close()


def _entries(new: NewTask) -> list[Entry]:
    ids = b'"taskId":"%b","contextId":"%b"' % (new.id.encode(), new.context_id.encode())
    status = b'{"statusUpdate":{%b,"status":{"state":"TASK_STATE_%b","timestamp":"2026-09-21T12:53:20.000Z"}}}'
    artifact = b'{"artifactId":"output","parts":[{"text":"%d of the pieces "}]}'
    piece = b'{"artifactUpdate":{%b,"artifact":' + artifact + b',"append":true}}'
    message = b'{"message":{"messageId":"%b","role":"ROLE_USER","parts":[{"text":"go"}],%b}}'
    told = [(0, 1, MESSAGE, message % (new_id().encode(), ids))]
    told += [(1, 0, STATUS, status % (ids, b"SUBMITTED")), (2, 0, STATUS, status % (ids, b"WORKING"))]
    told += [(seq, 0, ARTIFACT, piece % (ids, seq)) for seq in range(3, PER_TASK - 1)]
    told.append((PER_TASK - 1, 0, STATUS, status % (ids, b"COMPLETED")))
    chain, made = NO_CHAIN, []
    for ordinal, (seq, sub, kind, data) in enumerate(told):
        at = START_US + ordinal * 1000
        chain = link(chain, seq, sub, kind, data, at, ordinal)
        made.append(Entry(seq, sub, kind, data, at, ordinal, chain))
    return made
