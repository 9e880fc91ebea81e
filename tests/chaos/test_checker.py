"""The checker accepts a good history, and finds every kind of violation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from chaos.checker import check
from chaos.history import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    SUBMITTED,
    WORKING,
    Acknowledged,
    Cancel,
    Delivery,
    Final,
    Frame,
    History,
    Listed,
    Opening,
    Reading,
    Refusal,
    Sent,
    Stream,
    TimedOut,
)
from chaos.texts import FRAGILE, STREAM

TASK, MESSAGE = "task-1", "message-1"
WORDS = ["one ", "two ", "three "]
TEXT = "".join(WORDS)


def status(state: str, message: str = "", at: str = "2026-01-01T00:00:00.000Z") -> dict[str, Any]:
    found: dict[str, Any] = {"state": state, "timestamp": at}
    return found | ({"message": {"parts": [{"text": message}]}} if message else {})


def task(state: str = COMPLETED, text: str = TEXT, message: str = "", task_id: str = TASK) -> dict[str, Any]:
    history = [{"messageId": MESSAGE, "role": "ROLE_USER", "parts": []}]
    artifacts = [{"artifactId": "output", "parts": [{"text": text}]}] if text else []
    return {"id": task_id, "status": status(state, message), "artifacts": artifacts, "history": history}


def status_event(seq: int, state: str, message: str = "", at: str = "2026-01-01T00:00:00.000Z") -> Frame:
    event = {"statusUpdate": {"taskId": TASK, "status": status(state, message, at)}}
    return Frame(seq, json.dumps(event, separators=(",", ":")).encode(), seq)


def text_event(seq: int, text: str, *, append: bool = True) -> Frame:
    artifact = {"artifactId": "output", "parts": [{"text": text}]}
    event = {"artifactUpdate": {"taskId": TASK, "artifact": artifact, "append": append}}
    return Frame(seq, json.dumps(event, separators=(",", ":")).encode(), seq)


def frames(state: str = COMPLETED, why: str = "") -> list[Frame]:
    """The events of a task: 2 WORKING, 3 to 5 words, 6 the end."""
    words = [text_event(3 + number, word, append=number > 0) for number, word in enumerate(WORDS)]
    return [status_event(2, WORKING), *words, status_event(6, state, why)]


def opening(seq: int, state: str, text: str = "") -> Opening:
    return Opening(seq, json.dumps(task(state, text)).encode())


def good(state: str = COMPLETED, agent: str = STREAM, why: str = "") -> History:
    """One message, its task, a stream with one resumption, a reading, a webhook."""
    events = frames(state, why)
    seen = [opening(1, SUBMITTED), *events[:3], opening(4, WORKING, "one two "), *events[3:]]
    return History(
        sent={MESSAGE: Sent(MESSAGE, agent, TEXT, webhook=True)},
        acknowledged=[Acknowledged(MESSAGE, TASK)],
        streams=[Stream(TASK, list(seen))],
        readings=[Reading(TASK, 0.0, 1.0, WORKING, "one "), Reading(TASK, 10.0, 11.0, state, TEXT)],
        deliveries=[Delivery(MESSAGE, f"d{frame.seq}", frame.data, True) for frame in events],
        finals={TASK: Final(TASK, agent, "context", task(state, TEXT, why), events)},
        listed=[Listed(TASK, state, [MESSAGE])],
        steps=["run task-1:work:0 7", "run task-1:work:0 8", "past task-1:work:0 8", "run task-1:work:1 8"],
    )


def kinds(history: History) -> set[str]:
    return {violation.kind for violation in check(history).violations}


def test_a_good_history_has_no_violation() -> None:
    assert check(good()).violations == []


def test_a_restart_frame_replaces_the_text_without_a_violation() -> None:
    history = good()
    again = [
        status_event(2, WORKING),
        text_event(3, "one ", append=False),
        text_event(4, "two "),
        text_event(5, "one ", append=False),
    ]
    again += [text_event(6, "two "), text_event(7, "three "), status_event(8, COMPLETED)]
    history.streams = [Stream(TASK, [opening(1, SUBMITTED), *again])]
    history.finals[TASK] = history.finals[TASK]._replace(frames=again)
    history.deliveries = [Delivery(MESSAGE, f"d{frame.seq}", frame.data, True) for frame in again]
    assert check(history).violations == []


def drop_from_journal(history: History) -> None:
    final = history.finals[TASK]
    history.finals[TASK] = final._replace(frames=final.frames[:-1])


def drop_from_stream(history: History) -> None:
    del history.streams[0].seen[2]


def repeat_in_stream(history: History) -> None:
    history.streams[0].seen.insert(3, history.streams[0].seen[2])


def repeat_after_resuming(history: History) -> None:
    seen = history.streams[0].seen
    seen.insert(5, seen[3])


def swap_in_stream(history: History) -> None:
    seen = history.streams[0].seen
    seen[2], seen[3] = seen[3], seen[2]


def gap_in_journal(history: History) -> None:
    del history.finals[TASK].frames[2]


def change_a_byte(history: History) -> None:
    history.streams[0].seen[5] = text_event(5, "three_")


def change_the_past(history: History) -> None:
    history.streams[0].seen[4] = opening(4, WORKING, "one two three ")


def end_with_another_text(history: History) -> None:
    history.finals[TASK] = history.finals[TASK]._replace(task=task(COMPLETED, "one two "))


def go_on_after_the_end(history: History) -> None:
    history.streams[0].seen.append(status_event(7, WORKING))


def go_back(history: History) -> None:
    history.readings.append(Reading(TASK, 20.0, 21.0, WORKING, "one "))


def lose_the_task(history: History) -> None:
    history.finals.clear()
    history.listed.clear()


def hide_the_task(history: History) -> None:
    history.listed.clear()


def make_two_tasks(history: History) -> None:
    history.listed.append(Listed("task-2", COMPLETED, [MESSAGE]))
    other = history.finals[TASK]
    history.finals["task-2"] = other._replace(task_id="task-2", task=task(task_id="task-2"))


def acknowledge_two_tasks(history: History) -> None:
    history.acknowledged.append(Acknowledged(MESSAGE, "task-2"))


def appear_from_nowhere(history: History) -> None:
    history.listed.append(Listed("task-2", COMPLETED, ["message-2"]))
    history.finals["task-2"] = history.finals[TASK]._replace(task_id="task-2", task=task(task_id="task-2"))


def cancel_by_nobody(history: History) -> None:
    history.finals[TASK] = good(CANCELED).finals[TASK]


def complete_after_a_cancel(history: History) -> None:
    history.cancels += [Cancel(TASK, ""), Cancel(TASK, CANCELED)]


def fail_without_a_reason(history: History) -> None:
    history.finals[TASK] = good(FAILED, why="The agent failed. Error id: 1").finals[TASK]


def stay_working(history: History) -> None:
    history.finals[TASK] = good(WORKING).finals[TASK]


def wait_for_an_answer(history: History) -> None:
    history.finals[TASK] = good(INPUT_REQUIRED).finals[TASK]


def lose_the_answer(history: History) -> None:
    history.sent[MESSAGE].answer_id, history.sent[MESSAGE].answered = "answer-1", True


def time_out(history: History) -> None:
    history.timeouts.append(TimedOut(TASK, "the end of its stream"))


def refuse(history: History) -> None:
    history.refusals.append(Refusal(TASK, "GET stream/tasks/task-1", "404 no such task"))


def die(history: History) -> None:
    history.hosts.append("A exited by itself with 1")


def miss_a_webhook(history: History) -> None:
    del history.deliveries[3]


def miss_the_last_webhook(history: History) -> None:
    del history.deliveries[-1]


def refuse_a_webhook_for_ever(history: History) -> None:
    history.deliveries[-1] = history.deliveries[-1]._replace(accepted=False)


def miss_all_webhooks(history: History) -> None:
    history.deliveries.clear()


def swap_webhooks(history: History) -> None:
    calls = history.deliveries
    calls[1], calls[2] = calls[2], calls[1]


def call_with_something_else(history: History) -> None:
    history.deliveries.insert(2, Delivery(MESSAGE, "d9", text_event(3, "four ").data, True))


def change_a_webhook(history: History) -> None:
    history.deliveries.append(history.deliveries[2]._replace(data=history.deliveries[3].data))


def run_a_step_again(history: History) -> None:
    history.steps.append("run task-1:work:0 9")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (drop_from_journal, "lost"),
        (drop_from_stream, "gap"),
        (repeat_in_stream, "repeated"),
        (repeat_after_resuming, "repeated"),
        (swap_in_stream, "gap"),
        (swap_in_stream, "repeated"),
        (gap_in_journal, "gap"),
        (gap_in_journal, "lost"),
        (change_a_byte, "changed"),
        (change_a_byte, "text"),
        (change_the_past, "changed"),
        (end_with_another_text, "text"),
        (go_on_after_the_end, "order"),
        (go_back, "went back"),
        (lose_the_task, "no task"),
        (hide_the_task, "no task"),
        (make_two_tasks, "two tasks"),
        (acknowledge_two_tasks, "two tasks"),
        (appear_from_nowhere, "no message"),
        (cancel_by_nobody, "state"),
        (complete_after_a_cancel, "state"),
        (fail_without_a_reason, "state"),
        (stay_working, "stuck"),
        (wait_for_an_answer, "stuck"),
        (lose_the_answer, "lost"),
        (time_out, "stuck"),
        (refuse, "refused"),
        (die, "host"),
        (miss_a_webhook, "webhook"),
        (miss_the_last_webhook, "webhook"),
        (refuse_a_webhook_for_ever, "webhook"),
        (miss_all_webhooks, "webhook"),
        (swap_webhooks, "webhook"),
        (call_with_something_else, "webhook"),
        (change_a_webhook, "webhook"),
        (run_a_step_again, "step"),
    ],
)
def test_each_kind_of_violation_is_found(change: Callable[[History], None], kind: str) -> None:
    history = good()
    change(history)
    assert kind in kinds(history)


def repeat_a_webhook(history: History) -> None:
    history.deliveries.insert(3, history.deliveries[1])


def refuse_a_webhook_once(history: History) -> None:
    history.deliveries.insert(2, history.deliveries[2]._replace(accepted=False))


def read_an_earlier_state_before_the_end(history: History) -> None:
    history.readings.append(Reading(TASK, 5.0, 12.0, WORKING, "one two "))


def run_a_step_in_a_frozen_process(history: History) -> None:
    history.steps.append("run task-1:work:0 9")
    history.frozen.add(9)


@pytest.mark.parametrize(
    "harmless",
    [
        repeat_a_webhook,
        refuse_a_webhook_once,
        read_an_earlier_state_before_the_end,
        run_a_step_in_a_frozen_process,
    ],
)
def test_allowed_deviations_are_no_violations(harmless: Callable[[History], None]) -> None:
    history = good()
    harmless(history)
    assert check(history).violations == []


def test_a_task_may_fail_when_its_host_died_too_often_and_is_counted() -> None:
    verdict = check(good(FAILED, why="The host died 4 times while this task was running; it is not tried again."))
    assert (verdict.violations, verdict.given_up, verdict.never_begun) == ([], 1, 0)


def test_a_task_that_cannot_be_called_twice_may_fail_as_interrupted_and_no_other_may() -> None:
    why = "The host was interrupted while this task was running, and this agent cannot be called twice."
    verdict = check(good(FAILED, agent=FRAGILE, why=why))
    assert (verdict.violations, verdict.interrupted) == ([], 1)
    assert kinds(good(FAILED, why=why)) == {"state"}


def test_a_task_may_be_canceled_when_somebody_cancelled_it() -> None:
    history = good(CANCELED)
    history.cancels.append(Cancel(TASK, ""))
    assert check(history).violations == []


def test_turns_of_one_conversation_do_not_overlap() -> None:
    history = good()
    history.sent[MESSAGE].context_id = "talk"
    history.sent["message-2"] = Sent("message-2", STREAM, TEXT, "talk")
    history.acknowledged.append(Acknowledged("message-2", "task-2"))
    history.listed.append(Listed("task-2", COMPLETED, ["message-2"]))

    def second(begun: str, ended: str) -> Final:
        events = frames()
        events[0], events[-1] = status_event(2, WORKING, at=begun), status_event(6, COMPLETED, at=ended)
        return Final("task-2", STREAM, "talk", task(task_id="task-2"), events)

    history.finals["task-2"] = second("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:03.000Z")
    assert check(history).violations == []
    first = history.finals[TASK]
    first.frames[-1] = status_event(6, COMPLETED, at="2026-01-01T00:00:01.000Z")
    history.streams.clear()
    history.deliveries[-1] = Delivery(MESSAGE, "d6", first.frames[-1].data, True)
    history.finals["task-2"] = second("2026-01-01T00:00:00.500Z", "2026-01-01T00:00:03.000Z")
    assert kinds(history) == {"turn"}
