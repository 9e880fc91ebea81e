"""The probe of the store: one at most once a second, however many ask, and each gets its outcome."""

from __future__ import annotations

import asyncio

import pytest

from roost.engine import probe
from roost.engine.probe import StoreProbe
from roost.engine.store_types import StoreUnavailable
from roost.stores.memory import MemoryStore
from tests.waiting import until


class Counted(MemoryStore):
    """A store that counts its probes, and can be told to refuse or to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.probes = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def probe(self) -> None:
        self.probes += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure


async def test_all_who_ask_at_once_share_one_probe() -> None:
    store = Counted()
    store.gate.clear()
    shared = StoreProbe(store)
    asking = [asyncio.ensure_future(shared.ask()) for _ in range(100)]
    await until(lambda: store.probes == 1)
    asking[0].cancel()
    store.gate.set()
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert done[1:] == [None] * 99
    assert store.probes == 1


async def test_the_outcome_of_a_probe_holds_for_a_while_and_then_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Counted()
    shared = StoreProbe(store)
    monkeypatch.setattr(probe, "EVERY_S", float("inf"))
    await shared.ask()
    store.failure = StoreUnavailable("full")
    await shared.ask()
    assert store.probes == 1
    monkeypatch.setattr(probe, "EVERY_S", 0.0)
    with pytest.raises(StoreUnavailable, match="full"):
        await shared.ask()
    monkeypatch.setattr(probe, "EVERY_S", float("inf"))
    store.failure = None
    with pytest.raises(StoreUnavailable, match="full"):
        await shared.ask()
    assert store.probes == 2
    monkeypatch.setattr(probe, "EVERY_S", 0.0)
    await shared.ask()


async def test_a_store_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_S", 0.01)
    store = Counted()
    store.gate.clear()
    shared = StoreProbe(store)
    done = await asyncio.gather(*(shared.ask() for _ in range(10)), return_exceptions=True)
    assert {type(error) for error in done} == {TimeoutError}
    assert store.probes == 1
    await shared.close()
