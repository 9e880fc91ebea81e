"""Judges a history: finds every difference from an undisturbed one, with the evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from chaos.history import (
    CANCELED,
    COMPLETED,
    FAILED,
    SUBMITTED,
    TERMINAL,
    WORKING,
    Delivery,
    Final,
    Frame,
    History,
    Opening,
    Sent,
    Stream,
    View,
    decode,
    text_of,
)
from chaos.texts import FRAGILE

SHOWN = 300
DIED_TOO_OFTEN = "The host died 4 times while this task was running"
INTERRUPTED = "The host was interrupted while this task was running"


class Violation(NamedTuple):
    kind: str
    task_id: str
    evidence: str


class Verdict(NamedTuple):
    violations: list[Violation]
    given_up: int
    """Tasks that ended FAILED after the documented number of attempts. This is allowed, but should be rare."""
    never_begun: int
    """Tasks among them that no host had started: they waited in the queue."""
    interrupted: int
    """Tasks of the agent that cannot be called twice that ended FAILED with that reason."""
    states: dict[str, int]


def check(history: History) -> Verdict:
    """Return all violations, each with the evidence that an investigation needs."""
    violations = [violation for check in Checker(history).checks() for violation in check]
    failed = [(_ending(final.task)[1], final) for final in history.finals.values() if _ending(final.task)[0] == FAILED]
    given_up = [final for reason, final in failed if DIED_TOO_OFTEN in reason]
    return Verdict(
        violations,
        len(given_up),
        sum(not any(_is_status(frame) and _state(frame.data) == WORKING for frame in one.frames) for one in given_up),
        sum(INTERRUPTED in reason for reason, _ in failed),
        dict(Counter(_ending(final.task)[0] for final in history.finals.values())),
    )


class Checker:
    def __init__(self, history: History) -> None:
        self.history = history
        self.messages: dict[str, str] = {listed.task_id: listed.message_ids[0] for listed in history.listed}
        """The message that began each task, by task id."""
        self.messages |= {
            task_id: message_id for message_id, task_id in history.acknowledged if message_id in history.sent
        }
        self.cancelled = {cancel.task_id for cancel in history.cancels}
        self.journal = {
            task_id: {frame.seq: frame.data for frame in final.frames} for task_id, final in history.finals.items()
        }

    def checks(self) -> Iterator[Iterable[Violation]]:
        yield self.refusals()
        for stream in self.history.streams:
            yield self.stream(stream)
        yield self.readings()
        for final in self.history.finals.values():
            yield self.final(final)
        yield self.tasks_of_messages()
        yield self.webhooks()
        yield self.steps()
        yield self.turns()

    def sent(self, task_id: str) -> Sent | None:
        return self.history.sent.get(self.messages.get(task_id, ""))

    def refusals(self) -> Iterator[Violation]:
        for subject, request, answer in self.history.refusals:
            yield Violation("refused", subject, f"{request} was answered with {answer[:SHOWN]}")
        for subject, waited_for in self.history.timeouts:
            yield Violation("stuck", subject, f"a client waited in vain for {waited_for}")
        for what in self.history.hosts:
            yield Violation("host", "", what)

    def stream(self, stream: Stream) -> Iterator[Violation]:
        """Check that a stream has every event once and in order, as in the final journal, with the right text."""
        task_id, last, view = stream.task_id, 0, None
        sent, journal = self.sent(task_id), self.journal.get(task_id)
        for seen in stream.seen:
            if isinstance(seen, Opening):
                yield from self.opening(task_id, seen, last, view)
                if view is None:
                    last, view = seen.seq, View(decode(seen.task))
                continue
            if view is None:
                yield Violation("order", task_id, f"event {seen.seq} came before the Task")
                return
            if seen.seq <= last:
                yield Violation("repeated", task_id, f"event {seen.seq} after event {last}: {_show(seen.data)}")
                continue
            if seen.seq > last + 1:
                yield Violation("gap", task_id, f"event {seen.seq} after event {last}: {_show(seen.data)}")
            if view.state in TERMINAL:
                yield Violation("order", task_id, f"event {seen.seq} after the end: {_show(seen.data)}")
            last = seen.seq
            view.apply(decode(seen.data))
            if sent is not None and not sent.expected.startswith(view.text):
                yield Violation("text", task_id, f"at event {seen.seq} it is {_differs(view.text, sent.expected)}")
            if journal is not None and seen.seq not in journal:
                yield Violation("lost", task_id, f"event {seen.seq} was seen, but is gone: {_show(seen.data)}")
            elif journal is not None and journal[seen.seq] != seen.data:
                yield Violation(
                    "changed", task_id, f"event {seen.seq} was {_show(seen.data)}, now {_show(journal[seen.seq])}"
                )
        final = self.history.finals.get(task_id)
        if view is not None and final is not None and view.state in TERMINAL:
            now = View(final.task)
            if (view.state, view.text) != (now.state, now.text):
                yield Violation(
                    "text", task_id, f"the stream ends {view.state} {view.text!r}, the task {now.state} {now.text!r}"
                )

    def opening(self, task_id: str, opening: Opening, last: int, view: View | None) -> Iterator[Violation]:
        """Check that the Task at the beginning of a connection is the fold of the events before it."""
        task = decode(opening.task)
        if task["id"] != task_id:
            yield Violation("changed", task_id, f"a stream of it began with the task {task['id']}")
        elif view is None:
            sent = self.sent(task_id)
            if sent is not None and not sent.expected.startswith(text_of(task)):
                yield Violation("text", task_id, f"it began as {_differs(text_of(task), sent.expected)}")
        elif opening.seq != last:
            yield Violation("order", task_id, f"resumed at event {opening.seq} instead of {last}")
        elif (View(task).state, View(task).text) != (view.state, view.text):
            yield Violation(
                "changed",
                task_id,
                f"as of event {last} it was {view.state} {view.text!r}, resumed it is"
                f" {View(task).state} {View(task).text!r}",
            )

    def readings(self) -> Iterator[Violation]:
        """Check that every text that was read begins the expected text, and that no ended task changes."""
        ended: dict[str, float] = {}
        for stream in self.history.streams:
            for seen in stream.seen:
                if isinstance(seen, Frame) and _is_status(seen) and _state(seen.data) in TERMINAL:
                    ended[stream.task_id] = min(seen.at, ended.get(stream.task_id, seen.at))
        for reading in self.history.readings:
            if reading.state in TERMINAL:
                ended[reading.task_id] = min(reading.ended, ended.get(reading.task_id, reading.ended))
        for reading in self.history.readings:
            task_id = reading.task_id
            sent, final = self.sent(task_id), self.history.finals.get(task_id)
            if reading.state not in TERMINAL and reading.begun > ended.get(task_id, reading.begun):
                yield Violation("went back", task_id, f"it had ended, but was read as {reading.state} afterwards")
            if sent is not None and not sent.expected.startswith(reading.text):
                yield Violation("text", task_id, f"it was read as {_differs(reading.text, sent.expected)}")
            if reading.state in TERMINAL and final is not None:
                now = View(final.task)
                if (reading.state, reading.text) != (now.state, now.text):
                    yield Violation(
                        "changed",
                        task_id,
                        f"it had ended {reading.state} {reading.text!r}, but is {now.state} {now.text!r}",
                    )

    def final(self, final: Final) -> Iterator[Violation]:
        """Check that a task's events are complete and produce its text, and that its state is justified."""
        task_id, (state, reason), text = final.task_id, _ending(final.task), text_of(final.task)
        seqs = [frame.seq for frame in final.frames]
        if seqs != list(range(2, 2 + len(seqs))):
            yield Violation("gap", task_id, f"its events are {seqs}")
        view = View({"status": {"state": ""}})
        for frame in final.frames:
            view.apply(decode(frame.data))
        if (view.state, view.text) != (state, text):
            yield Violation(
                "text", task_id, f"its events produce {view.state} {view.text!r}, but it is {state} {text!r}"
            )
        sent = self.sent(task_id)
        if sent is None:
            yield Violation("no message", task_id, "no client sent a message for it")
            return
        if state == COMPLETED:
            if text != sent.expected:
                yield Violation("text", task_id, f"it is COMPLETED with {_differs(text, sent.expected)}")
            if any(cancel.task_id == task_id and cancel.state == CANCELED for cancel in self.history.cancels):
                yield Violation("state", task_id, "it is COMPLETED, but a cancel was answered with CANCELED")
        elif state == CANCELED:
            if task_id not in self.cancelled:
                yield Violation("state", task_id, "it is CANCELED, but nobody cancelled it")
        elif state == FAILED:
            if not (DIED_TOO_OFTEN in reason or (final.agent == FRAGILE and INTERRUPTED in reason)):
                yield Violation("state", task_id, f"it is FAILED with the message {reason!r}")
        else:
            yield Violation("stuck", task_id, f"it is still {state}")
        if sent.answered:
            answers = [message["messageId"] for message in final.task.get("history", [])].count(sent.answer_id)
            if answers != 1:
                yield Violation("lost", task_id, f"its answer was accepted, but is in its history {answers} times")

    def tasks_of_messages(self) -> Iterator[Violation]:
        """Check that every acknowledged message has its task, and that no message has two."""
        tasks: dict[str, set[str]] = defaultdict(set)
        for message_id, task_id in self.history.acknowledged:
            tasks[message_id].add(task_id)
            if task_id not in self.history.finals:
                yield Violation("no task", task_id, f"message {message_id} was acknowledged with it, but it is gone")
        listed = Counter(listed.task_id for listed in self.history.listed)
        for task_id in self.history.finals:
            if listed[task_id] != 1:
                yield Violation("no task", task_id, f"ListTasks has it {listed[task_id]} times")
        for entry in self.history.listed:
            for message_id in entry.message_ids:
                tasks[message_id].add(entry.task_id)
            if len(set(entry.message_ids)) != len(entry.message_ids):
                yield Violation("two tasks", entry.task_id, f"a message is in it twice: {entry.message_ids}")
        for message_id, ids in tasks.items():
            if len(ids) > 1:
                yield Violation("two tasks", min(ids), f"message {message_id} has {len(ids)} tasks: {sorted(ids)}")

    def webhooks(self) -> Iterator[Violation]:
        """Check that every event arrived, and that the first deliveries are in order."""
        calls: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.history.deliveries:
            calls[delivery.message_id].append(delivery)
        for task_id, final in self.history.finals.items():
            sent = self.sent(task_id)
            if sent is not None and sent.webhook:
                yield from self.webhook(final, calls.pop(sent.message_id, []))
        for message_id in calls:
            yield Violation("webhook", "", f"message {message_id} has no config or no task, but its webhook was called")

    def webhook(self, final: Final, calls: list[Delivery]) -> Iterator[Violation]:
        task_id, first = final.task_id, {}
        for call in calls:
            if first.setdefault(call.id, call.data) != call.data:
                yield Violation(
                    "webhook", task_id, f"{call.id} was {_show(first[call.id])}, and again {_show(call.data)}"
                )
        arrived = [data for data in first.values() if not _is_first_event(data)]  # the first event is in no stream
        accepted = {call.data for call in calls if call.accepted}
        for frame in final.frames:
            if frame.data not in accepted:
                yield Violation("webhook", task_id, f"event {frame.seq} did not arrive: {_show(frame.data)}")
                return
        for frame, data in zip_longest(final.frames, arrived):
            if frame is None:
                yield Violation(
                    "webhook", task_id, f"it was called with data that is no event of the task: {_show(data)}"
                )
            elif frame.data != data:
                seen = "nothing" if data is None else _show(data)
                yield Violation("webhook", task_id, f"expected event {frame.seq}, but received {seen}")
                return

    def steps(self) -> Iterator[Violation]:
        """Check that a step that a run has passed is on record, and never runs again."""
        past: dict[str, str] = {}
        for line in self.history.steps:
            what, key, pid = line.split()
            if what == "past":
                past.setdefault(key, pid)
            elif key in past and int(pid) not in self.history.frozen:
                yield Violation(
                    "step",
                    key.partition(":")[0],
                    f"step {key} ran in process {pid}, but process {past[key]} had passed it",
                )

    def turns(self) -> Iterator[Violation]:
        """Check that the turns of one conversation do not overlap."""
        turns: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
        for task_id, final in self.history.finals.items():
            sent = self.sent(task_id)
            if sent is None or not sent.context_id:
                continue
            statuses = [decode(frame.data)["statusUpdate"]["status"] for frame in final.frames if _is_status(frame)]
            begun = next((status["timestamp"] for status in statuses if status["state"] == WORKING), None)
            if begun is not None:
                turns[final.agent, sent.context_id].append((begun, statuses[-1]["timestamp"], task_id))
        for (_, context_id), spans in turns.items():
            spans.sort()
            for (_, ended, before), (begun, _, task_id) in pairwise(spans):
                if begun < ended:
                    yield Violation(
                        "turn", task_id, f"it began at {begun}, but {before} in {context_id} ended at {ended}"
                    )


def _ending(task: dict[str, Any]) -> tuple[str, str]:
    status = task["status"]
    return status["state"], "".join(part.get("text", "") for part in status.get("message", {}).get("parts", []))


def _state(data: bytes) -> str:
    state: str = decode(data)["statusUpdate"]["status"]["state"]
    return state


def _is_status(frame: Frame) -> bool:
    return frame.data.startswith(b'{"statusUpdate"')


def _is_first_event(data: bytes) -> bool:
    return data.startswith(b'{"statusUpdate"') and _state(data) == SUBMITTED


def _show(data: bytes) -> str:
    return data.decode(errors="replace")[:SHOWN]


def _differs(text: str, expected: str) -> str:
    """Describe where a text departs from the expected one."""
    at = next((at for at, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b), len(expected))
    begin = max(0, at - 20)
    return f"...{text[begin : at + 40]!r} where ...{expected[begin : at + 40]!r} is expected, {len(text)} characters"
