"""A process that exports or verifies a bundle, and reports how long it took and how much memory it used.

With `rfc8785` that package writes every canonical form; without it msgspec does where it is proven equal.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from roost.evidence import events, export
from roost.evidence.bundle import BundleLimits
from roost.evidence.export_selection import Selection
from roost.evidence.verify import verify
from roost.identity.keys import Keyring
from roost.identity.seal import Seal, load_key
from roost.protocol import canonical
from roost.stores.sqlite import SQLiteStore

LIMITS = BundleLimits(size=1 << 40, events=10**9)


class Job(Struct):
    work: str
    """`export` or `verify`."""
    folder: str
    file: str
    rfc8785: bool


class Done(Struct):
    seconds: float
    events: int
    before_mb: float
    """The peak memory before the work began."""
    peak_mb: float


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    if job.rfc8785:
        canonical.quick_jcs = events.quick_jcs = lambda value: None
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_export(job)) if job.work == "export" else _verify(job)))


async def _export(job: Job) -> Done:
    store = SQLiteStore(Path(job.folder))
    await store.open()
    ring = Keyring(store, Seal(load_key(Path(job.folder) / "secret.key", create=True)), "EdDSA")
    await ring.evidence_keys()
    before, started = _memory_mb(), time.perf_counter()
    with Path(job.file).open("wb") as out:
        made = await export.export(export.Source(store, ring), Selection(since_ms=0), out, LIMITS)
    seconds = time.perf_counter() - started
    await store.close()
    return Done(seconds, made.counts.events, before, _memory_mb())


def _verify(job: Job) -> Done:
    before, started = _memory_mb(), time.perf_counter()
    verdict = verify(Path(job.file), LIMITS)
    seconds = time.perf_counter() - started
    assert verdict.valid, verdict.faults
    return Done(seconds, verdict.counts.events, before, _memory_mb())


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
