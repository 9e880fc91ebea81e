"""The store committed, and its answer was lost: the same group is tried again and counts as written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from roost import Agent
from roost.engine.store_types import Append, OutcomeUnknown, StaleFence
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore
from roost.testing import CallFailed
from tests.agents.talk import send, serving, text_of
from tests.engine.gates import GateStore
from tests.waiting import until


class ForgetfulStore(SQLiteStore):
    """Commits, and does not say so, as often as it is told to."""

    forget = 0

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        results = await super().commit(group)
        if self.forget:
            self.forget -= 1
            raise OutcomeUnknown("the answer was lost")
        return results


def asking() -> Agent:
    agent = Agent("asking")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    return agent


async def test_a_message_whose_acknowledgement_was_lost_is_accepted_once(tmp_path: Path) -> None:
    store = ForgetfulStore(tmp_path)
    async with serving(asking(), store=store) as (host, _):
        store.forget = 1
        task = await send(host, "go")
        assert task.status.state is TaskState.INPUT_REQUIRED
        listed = (await host.http.get("/agents/asking/tasks")).json()
    assert listed["totalSize"] == 1


async def test_an_answer_whose_acknowledgement_was_lost_is_taken_once_and_goes_on(tmp_path: Path) -> None:
    store = ForgetfulStore(tmp_path)
    async with serving(asking(), store=store) as (host, _):
        task = await send(host, "go")
        store.forget = 1
        done = await send(host, "the answer", task=task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "the answer")


async def test_a_cancel_whose_acknowledgement_was_lost_is_told_to_the_caller(tmp_path: Path) -> None:
    store = ForgetfulStore(tmp_path)
    async with serving(asking(), store=store) as (host, _):
        task = await send(host, "go")
        store.forget = 1
        assert (await host.cancel(task)).status.state is TaskState.CANCELED


async def test_a_reader_does_not_wait_for_ever_for_a_store_that_does_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.engine.live.READ_WAIT_S", 0.05)
    store, release, agent = GateStore(), asyncio.Event(), Agent("waiting")

    @agent.on_message
    async def wait(task):
        await release.wait()
        yield "done"

    async with serving(agent, store=store) as (host, _):
        task = await send(host, "go", wait=False)
        store.commits.clear()
        release.set()
        await until(lambda: store.committing)
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await host.get(task)
        store.commits.set()


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
async def test_an_agent_that_raises_what_ends_programs_fails_its_task_and_nothing_else(error: type) -> None:
    agent = Agent("raising")

    @agent.on_message
    async def work(task):
        yield "before"
        raise error

    async with serving(agent) as (host, _):
        assert (await send(host, "go")).status.state is TaskState.FAILED
        assert (await send(host, "again")).status.state is TaskState.FAILED


async def test_the_journal_is_for_its_owner_only(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "new")
    files = [tmp_path / "new", *(tmp_path / "new").iterdir()]
    modes = {file.name: file.stat().st_mode & 0o077 for file in files}
    await store.close()
    assert set(modes.values()) == {0}, modes
