"""A task that kills its host is found among many, and none of the others is failed for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from roost import Agent
from roost.engine import blame, quarantine, recovery
from roost.engine.engine import Engine
from roost.engine.quarantine import GROUP
from roost.fleet.registry import Registry
from roost.identity.principal import LOCAL
from roost.protocol.codec import decoder
from roost.protocol.entries import ALONE, ATTEMPT, FEW, ORDINARY, PAST, WAITS, AttemptRecord
from roost.protocol.errors import Unavailable
from roost.protocol.types import TaskState
from tests.agents.programs import MortalStore, abandon, request
from tests.engine.shared import SharedStore
from tests.waiting import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "WINDOW_S", 0.1)
    monkeypatch.setattr(quarantine, "WINDOW_S", 0.1)
    monkeypatch.setattr(recovery, "BACKOFF_S", (0.0, 0.0, 0.0))


class Crowd:
    """Hosts on one store, one after another. A task `kill` stops its host for good, the others wait for the gate."""

    def __init__(self) -> None:
        self.store = MortalStore()
        self.gate = asyncio.Event()
        self.called: Counter[str] = Counter()
        self.armed = asyncio.Event()
        """Killers kill from now on."""
        self.killed = asyncio.Event()
        self.deaths = 0
        self.delay_s = 0.0
        self.engine: Engine | None = None

    def agent(self) -> Agent:
        agent = Agent("crowd")

        @agent.on_message
        async def work(task):
            self.called[task.text] += 1
            if task.text.startswith("kill"):
                await self.armed.wait()
                await asyncio.sleep(self.delay_s)
                self.store.live_for(0)
                self.killed.set()
                await asyncio.Event().wait()
            yield "begun "
            await self.gate.wait()
            yield "ended"

        return agent

    def fatal(self) -> Agent:
        """An agent that kills its host, and is not called again."""
        agent = Agent("fatal", on_crash="fail")

        @agent.on_message
        async def kill(task):
            await asyncio.sleep(self.delay_s)
            self.store.live_for(0)
            self.killed.set()
            await asyncio.Event().wait()

        return agent

    async def start(self) -> Engine:
        self.killed.clear()
        self.store.live_for(None)
        self.engine = Engine(
            self.store, Registry([self.agent().hosted(), self.fatal().hosted()]), f"worker {self.deaths}"
        )
        await self.engine.start()
        return self.engine

    async def restart(self) -> Engine:
        """Let the host die, and start the next one."""
        assert self.engine is not None
        await abandon(self.engine)
        self.deaths += 1
        return await self.start()

    async def send(self, *texts: str) -> None:
        assert self.engine is not None
        for text in texts:
            await self.engine.send(LOCAL, "crowd", request(text, wait=False))

    async def until_failed(self, *texts: str) -> None:
        """Start a host whenever one dies, until these tasks are FAILED."""
        self.armed.set()
        while True:
            await until(lambda: self.killed.is_set() or all(self.state(text) is TaskState.FAILED for text in texts))
            if not self.killed.is_set():
                return
            assert self.deaths < 60, "the killer is not found"
            await self.restart()

    def state(self, text: str) -> TaskState:
        return self.states()[text]

    def states(self) -> dict[str, TaskState]:
        return {
            decoder(dict)(row.entries[0].data if row.entries[0].sub else row.entries[1].data)["message"]["parts"][0][
                "text"
            ]: row.head.state
            for row in self.store.rows.values()
        }

    async def end(self, *texts: str) -> None:
        """Let the others end, and check that they do."""
        self.gate.set()
        await until(lambda: all(self.state(text) is TaskState.COMPLETED for text in texts))
        assert self.engine is not None
        await self.engine.close()


async def test_a_killer_among_many_is_failed_after_few_deaths_and_the_others_are_completed():
    crowd = Crowd()
    await crowd.start()
    innocent = [f"innocent {number}" for number in range(40)]
    await crowd.send(*innocent[:20])
    await until(lambda: len(crowd.called) == 20)
    await crowd.send("kill", *innocent[20:])
    await crowd.until_failed("kill")
    assert crowd.deaths == 7, "two in the crowd, one with a few others, four alone"
    assert crowd.called["kill"] == 7
    await crowd.end(*innocent)


async def test_a_killer_that_takes_longer_than_its_window_is_found_as_well():
    crowd = Crowd()
    crowd.delay_s = 0.25
    await crowd.start()
    innocent = [f"innocent {number}" for number in range(10)]
    await crowd.send("kill", *innocent)
    await crowd.until_failed("kill")
    assert crowd.deaths <= 10
    await crowd.end(*innocent)


async def test_a_killer_is_found_on_a_host_where_others_begin_all_the_time():
    crowd = Crowd()
    crowd.delay_s = 0.25
    await crowd.start()
    innocent = [f"innocent {number}" for number in range(5)]
    await crowd.send("kill", *innocent)
    began: list[str] = []

    async def send_more() -> None:
        while True:
            name = f"new {len(began)}"
            try:
                await crowd.send(name)
            except Unavailable:  # the host has just died, or is about to
                await asyncio.sleep(0.01)
                continue
            began.append(name)
            if len(began) == 60:
                return
            await asyncio.sleep(0.05)

    sending = asyncio.create_task(send_more())
    await crowd.until_failed("kill")
    assert crowd.deaths <= 16
    sending.cancel()
    await crowd.end(*innocent, *began)


async def test_a_task_that_is_tried_alone_is_not_failed_for_others_that_were_sent_before_its_trial(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(recovery, "BACKOFF_S", (0.0, 0.0, 0.2))
    crowd = Crowd()
    crowd.delay_s = 0.45  # later than its own window, and in the trial unless nothing begins before that
    await crowd.start()
    await crowd.send("slow", "other")
    for _ in range(10):
        assert crowd.engine is not None
        await crowd.engine.recovered.wait()
        await crowd.engine.send(LOCAL, "fatal", request("now", wait=False))
        await asyncio.wait_for(crowd.killed.wait(), 60)
        await crowd.restart()
    await crowd.end("slow", "other")


async def test_two_killers_are_both_found():
    crowd = Crowd()
    await crowd.start()
    innocent = [f"innocent {number}" for number in range(10)]
    await crowd.send(*innocent, "kill one", "kill two")
    await crowd.until_failed("kill one", "kill two")
    await crowd.end(*innocent)


async def test_a_caller_that_sends_one_killer_after_another_costs_nobody_else_a_task():
    crowd = Crowd()
    await crowd.start()
    innocent = [f"innocent {number}" for number in range(5)]
    await crowd.send(*innocent)
    await until(lambda: len(crowd.called) == 5)
    killers = [f"kill {number}" for number in range(8)]
    for killer in killers:
        crowd.armed.clear()
        await crowd.send(killer)
        crowd.armed.set()
        await asyncio.wait_for(crowd.killed.wait(), 60)
        await crowd.restart()
    await crowd.until_failed(*killers)
    await crowd.end(*innocent)


async def test_a_few_suspects_run_at_once_and_the_rest_when_those_have_ended_or_passed():
    crowd = Crowd()
    texts = [str(number) for number in range(3 * GROUP)]
    await crowd.start()
    await crowd.send(*texts)
    for _ in range(2):
        await until(lambda: len(crowd.called) == len(texts))
        crowd.called.clear()
        await crowd.restart()
    await until(lambda: len(crowd.called) == GROUP)
    await until(lambda: len(crowd.called) == len(texts))
    await until(lambda: [_manners(crowd, task) for task in crowd.store.rows] == [[ORDINARY, WAITS, FEW, PAST]] * 24)
    await crowd.end(*texts)


def _manners(crowd: Crowd, task_id: str) -> list[str]:
    entries = crowd.store.rows[task_id].entries
    return [decoder(AttemptRecord)(entry.data).manner for entry in entries if entry.kind == ATTEMPT]


async def test_other_tasks_wait_a_moment_while_one_is_tried_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blame, "WINDOW_S", 600.0)
    monkeypatch.setattr(quarantine, "WINDOW_S", 600.0)
    crowd = Crowd()
    await crowd.start()
    await crowd.send("suspect", "other")
    for _ in range(3):
        await until(lambda: len(crowd.called) == 2)
        crowd.called.clear()
        await crowd.restart()
    await until(lambda: crowd.called["suspect"])
    await crowd.send("new")
    crowd.gate.set()
    await until(lambda: crowd.state("new") is TaskState.COMPLETED)
    assert next(iter(crowd.called)) == "suspect", "it ran alone until it had ended"
    assert crowd.engine is not None
    await crowd.engine.close()


async def test_nothing_begins_from_the_start_until_a_task_is_tried_alone(monkeypatch: pytest.MonkeyPatch):
    crowd = Crowd()
    await crowd.start()
    await crowd.send("slow", "other")
    for _ in range(7):
        await until(lambda: len(crowd.called) == 2)
        crowd.called.clear()
        monkeypatch.setattr(recovery, "BACKOFF_S", (0.0, 0.0, 0.5))
        await crowd.restart()
        crowd.armed.set()
        assert crowd.engine is not None
        await crowd.engine.recovered.wait()
        if crowd.engine.recovery.quarantine.closed is not None:
            await crowd.send("kill")
            await until(lambda: crowd.called or crowd.killed.is_set())
            assert "kill" not in crowd.called
            crowd.called.clear()
            break
    else:
        pytest.fail("nothing was tried alone")
    await crowd.until_failed("kill")
    await crowd.end("slow", "other")


async def test_a_new_run_that_begins_during_a_long_trial_is_on_record_as_company(monkeypatch: pytest.MonkeyPatch):
    crowd = Crowd()
    await crowd.start()
    await crowd.send("slow")
    await until(lambda: crowd.called["slow"])
    assert crowd.engine is not None
    [(_, run)] = crowd.engine.runner.runs.values()
    tried = crowd.engine.recovery.quarantine
    late = [blame.Loss("w1", 9, PAST)] * 4 + [blame.Loss("w2", 9, FEW)]
    tried.suspect(run, blame.Suspicion(late))
    assert tried.closed is not None
    await tried.enter(run)
    await crowd.send("new")
    await until(lambda: crowd.called["new"])
    assert _attempts(crowd, run.task_id)[-1] == (ALONE, 1)
    assert tried.closed is None
    await crowd.end("slow", "new")


async def test_a_run_that_waits_for_the_quarantine_is_left_to_the_next_host_when_this_one_drains():
    crowd = Crowd()
    await crowd.start()
    await crowd.send("first")
    await until(lambda: crowd.called["first"])
    assert crowd.engine is not None
    engine = crowd.engine
    [(_, first)] = engine.runner.runs.values()
    engine.recovery.quarantine.suspect(first, blame.Suspicion([blame.Loss(f"w{at}", 9, FEW) for at in range(2)]))
    await crowd.send("waits")
    await until(lambda: engine.runner.entering)
    closing = asyncio.create_task(engine.close(60.0))
    await until(lambda: engine.runner.draining)
    engine.recovery.quarantine.leave(first)
    await until(lambda: not engine.runner.entering)
    crowd.gate.set()
    await closing
    assert crowd.called["waits"] == 0


async def test_a_drain_does_not_wait_for_runs_that_the_quarantine_keeps_out():
    crowd = Crowd()
    await crowd.start()
    await crowd.send("first")
    await until(lambda: crowd.called["first"])
    assert crowd.engine is not None
    [(_, first)] = crowd.engine.runner.runs.values()
    crowd.engine.recovery.quarantine.suspect(first, blame.Suspicion([blame.Loss(f"w{at}", 9, FEW) for at in range(2)]))
    await crowd.send("waits")
    await until(lambda: len(crowd.engine.runner.entering) == 1)
    crowd.gate.set()
    await asyncio.wait_for(crowd.engine.runner.finish(600.0), 60)
    assert crowd.called["waits"] == 0
    await crowd.engine.close()


def _attempts(crowd: Crowd, task_id: str) -> list[tuple[str, int]]:
    entries = crowd.store.rows[task_id].entries
    records = [decoder(AttemptRecord)(entry.data) for entry in entries if entry.kind == ATTEMPT]
    return [(record.manner, record.company) for record in records]


async def test_a_journal_of_the_release_before_is_judged_as_that_release_did():
    records = [AttemptRecord(number, "old worker") for number in (1, 2, 3)]
    assert decoder(AttemptRecord)(b'{"number":1,"worker":"old worker"}') == records[0]
    suspicion = blame.Suspicion.from_records(records, None)
    assert (suspicion.blamed, suspicion.guilty) == (3, False)
    assert blame.Suspicion.from_records(records, blame.Loss("w", 1, ORDINARY)).guilty


def test_only_deaths_in_which_the_task_ran_alone_are_blamed_on_it():
    def suspicion(*losses: tuple[int, str]) -> blame.Suspicion:
        return blame.Suspicion(blame.Loss(f"w{at}", tasks, manner) for at, (tasks, manner) in enumerate(losses))

    assert suspicion((1, ORDINARY), (1, FEW), (1, PAST), (7, ALONE)).guilty
    assert not suspicion(*[(2, ORDINARY)] * 9).guilty
    assert not suspicion(*[(2, FEW)] * 9).guilty
    assert not suspicion(*[(1, WAITS)] * 9).suspect
    assert not suspicion(*[(7, ALONE)] * 4).without(["w2"]).guilty
    in_company = [blame.Loss(f"w{at}", 7, ALONE, company=1) for at in range(9)]
    assert not blame.Suspicion(in_company).guilty
    assert blame.Suspicion(in_company).accompanied
    assert suspicion((5, ORDINARY), (5, PAST), (5, PAST)).window_s == pytest.approx(blame.WINDOW_S * 4)
    assert suspicion(*[(5, PAST)] * 30).window_s == pytest.approx(blame.WINDOW_S * 32)


async def test_a_verdict_waits_for_hosts_that_may_come_back(monkeypatch: pytest.MonkeyPatch):
    """The last of the deaths was a lapse, and nobody could know that when the task was taken over."""
    monkeypatch.setattr(quarantine, "VERDICT_S", 0.5)
    store = SharedStore()
    crowd = Crowd()
    crowd.store = store  # type: ignore[assignment]
    names = []

    async def start(name: str) -> Engine:
        engine = Engine(store, Registry([crowd.agent().hosted()]), name)
        await engine.start()
        names.append(name)
        return engine

    engine = await start("0")
    await engine.send(LOCAL, "crowd", request("suspect", wait=False))
    for number in range(1, 5):
        await until(lambda number=number: crowd.called["suspect"] == number)
        await abandon(engine)
        assert engine.lease.task is not None
        engine.lease.task.cancel()
        store.leases[engine.worker.name] = time.monotonic()
        engine = await start(str(number))
    await store.survive("3")
    await until(lambda: crowd.called["suspect"] == 5)
    crowd.gate.set()
    [row] = store.rows.values()
    await until(lambda: row.head.state is TaskState.COMPLETED)
    await engine.close()
