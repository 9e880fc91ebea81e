"""The probe of the store, which writes: at most once a second, however many ask."""

from __future__ import annotations

import asyncio

from roost.engine.ports import Store

EVERY_S = 1.0
PROBE_S = 5.0
"""Seconds after which a store that does not answer counts as one that cannot."""


class StoreProbe:
    """Proves that the store can write and read. Whoever asks within a second of a probe shares its outcome."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.began = float("-inf")
        self.probing: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        """Return if the store could write and read within the last second.

        Raise StoreUnavailable if it could not, and TimeoutError if it did not answer.
        """
        loop = asyncio.get_running_loop()
        if self.probing is None or (self.probing.done() and loop.time() - self.began >= EVERY_S):
            self.began = loop.time()
            self.probing = loop.create_task(self._probe(), name="store probe")
            self.probing.add_done_callback(_noted)
        await asyncio.shield(self.probing)  # one of those who wait may be cancelled

    async def close(self) -> None:
        if self.probing is not None:
            self.probing.cancel()
            await asyncio.gather(self.probing, return_exceptions=True)

    async def _probe(self) -> None:
        async with asyncio.timeout(PROBE_S):
            await self.store.probe()
            await self.store.read_task("")


def _noted(task: asyncio.Task[None]) -> None:
    """Take note of the error: perhaps nobody waits for it any more."""
    if not task.cancelled():
        task.exception()
