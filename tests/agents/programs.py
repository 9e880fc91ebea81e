"""Random agents: a program is a list of things to say and do, and it knows what an undisturbed run gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import strategies as st

from roost import Agent, Artifact, Part
from roost.engine.engine import Engine
from roost.engine.store_types import Append, StaleFence
from roost.protocol.errors import Unavailable
from roost.protocol.types import Message, Role, SendMessageConfiguration, SendMessageRequest
from roost.stores.memory import MemoryStore
from tests.agents.talk import KINDS, of_kind


class Op(NamedTuple):
    what: str
    word: str


words = st.text("abcdef", min_size=1, max_size=3)
names = st.sampled_from(["x", "y"])
ops = st.one_of(
    st.builds(Op, st.just("say"), words),
    st.builds(Op, st.just("data"), words),
    st.builds(Op, st.just("tell"), words),
    st.builds(Op, st.just("report"), names),
    st.builds(Op, st.just("step"), names),
    st.builds(Op, st.just("ask"), words),
)
programs = st.lists(ops, max_size=14)
kinds = st.sampled_from(KINDS)
joins = st.sampled_from([0, 0.5, 60_000])


class Program:
    """`ran` counts how often the function behind each step was called, by its place in the program."""

    def __init__(self, what: Sequence[Op]) -> None:
        self.what = what
        self.ran: Counter[int] = Counter()

    @property
    def questions(self) -> int:
        return sum(op.what == "ask" for op in self.what)

    def answer(self, number: int) -> str:
        return f"answer {number}"

    def expected(self) -> dict[str, list[Any]]:
        """The parts of each artifact, with neighbouring texts of `output` joined."""
        found: dict[str, list[Any]] = {}
        asked = 0
        for place, op in enumerate(self.what):
            if op.what == "report":
                found[op.word] = [f"report {place}"]
            elif op.what == "data":
                found.setdefault("output", []).append({"data": op.word})
            elif op.what != "tell":
                asked += op.what == "ask"
                text = {"say": op.word, "step": self._stepped(place), "ask": self._asked(self.answer(asked))}[op.what]
                output = found.setdefault("output", [])
                if output and isinstance(output[-1], str):
                    output[-1] += text
                else:
                    output.append(text)
        return found

    def agent(self, kind: str, join_ms: float = 0) -> Agent:
        agent = Agent("program", join_ms=join_ms)

        async def async_generator(task):
            for place, op in enumerate(self.what):
                if op.what == "step":
                    yield self._stepped(await task.step(op.word, self._work, place))
                elif op.what == "ask":
                    yield self._asked((await task.ask(op.word)).text)
                elif op.what == "tell":
                    task.status(op.word)
                else:
                    yield self._value(place, op)

        async def coroutine(task):
            async for value in async_generator(task):
                task.emit(value)
                await asyncio.sleep(0)

        def generator(task):
            for place, op in enumerate(self.what):
                if op.what == "step":
                    yield self._stepped(task.step(op.word, self._work, place))
                elif op.what == "ask":
                    yield self._asked(task.ask(op.word).text)
                elif op.what == "tell":
                    task.status(op.word)
                else:
                    yield self._value(place, op)

        def function(task):
            for value in generator(task):
                task.emit(value)

        agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
        return agent

    def _work(self, place: int) -> int:
        self.ran[place] += 1
        return place

    def _stepped(self, place: int) -> str:
        return f"<{place}>"

    def _asked(self, answer: str) -> str:
        return f"({answer})"

    def _value(self, place: int, op: Op) -> Any:
        if op.what == "report":
            return Artifact(artifact_id=op.word, parts=[Part(text=f"report {place}")])
        return {"data": op.word} if op.what == "data" else op.word


def contents(artifacts: list[Artifact]) -> dict[str, list[Any]]:
    """Return the content of artifacts in the form of Program.expected."""
    found: dict[str, list[Any]] = {}
    for artifact in artifacts:
        assert artifact.artifact_id not in found, "two artifacts have one id"
        parts = found[artifact.artifact_id] = []
        for part in artifact.parts:
            value = part.text if isinstance(part.text, str) else part.data
            if isinstance(value, str) and parts and isinstance(parts[-1], str):
                parts[-1] += value
            else:
                parts.append(value)
    return found


def request(text: str, task_id: str = "", *, wait: bool = True) -> SendMessageRequest:
    message = Message(message_id=f"m {text}", role=Role.USER, parts=[Part(text=text)], task_id=task_id)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=not wait))


class MortalStore(MemoryStore):
    """Commits so many groups and then no more, as a host that dies between two commits."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.dead = False

    def live_for(self, commits: int | None) -> None:
        self.left, self.dead = commits, False

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        if self.left == 0:
            self.dead = True
            await asyncio.Event().wait()
        if self.left is not None:
            self.left -= 1
        return await super().commit(group)


async def abandon(engine: Engine) -> None:
    """Abandon the engine as a crash would: nothing more is run, written or closed."""
    engine.runner.closing = True
    runs = [run for _, run in engine.runner.runs.values()]
    tasks = [*engine.committer.workers, engine.recovery.task, *(run.task for run in runs)]
    for live in engine.lives.by_id.values():
        live.refused(Unavailable("the host is dead"))  # wakes the threads that wait for a commit
    for task in tasks:
        if task is not None:
            task.cancel()
            with suppress(BaseException):
                await task
