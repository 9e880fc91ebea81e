"""Reads an agent's turn from its task's stream: text as it arrives, tool calls, tokens, and the end."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from roost.doors.openai.turn import shown
from roost.extensions.data import TokenUsage, ToolCall, merged, plain, question_of, tool_calls_of, usage_of
from roost.protocol.fold import apply_artifact, apply_status
from roost.protocol.states import PAUSED, SETTLED
from roost.protocol.types import (
    Artifact,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)

BREAK = "\n\n"
"""The separator between artifacts, and before a question."""
MAX_TOOL_CALLS = 1000
SILENT = {
    TaskState.INPUT_REQUIRED: "The agent needs more input to go on.",
    TaskState.AUTH_REQUIRED: "The agent needs an authorization to go on.",
}
"""The text for a state in which the agent says nothing."""
MESSAGE = ""
"""The id of the text among the ids of tool calls, which are never empty."""


class Piece(NamedTuple):
    """Some text, or a tool call that has begun, changed or ended."""

    text: str
    call: ToolCall | None


class TurnReader:
    """Reads one turn. `task` is the task when the turn begins, with the text of earlier turns, and is kept up to date.

    Text that was streamed cannot be withdrawn. When an artifact begins anew, because a run after a crash repeats it,
    it is compared with what was sent, and the stream continues where they differ. If this turn has added to an artifact
    of earlier turns, such a run repeats their text too; an artifact that this turn begins anew is its own.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.before = {artifact.artifact_id: shown(plain(artifact.parts)) for artifact in task.artifacts}
        """The text of earlier turns in each artifact, unless this turn has replaced it."""
        self.sent: dict[str, list[str]] = {}
        """The text that the client has of each artifact that this turn has changed."""
        self.owed: dict[str, str] = {}
        """The text of an artifact that began anew which was sent and has not been repeated yet."""
        self.spoke = False
        message = task.status.message
        self.usage: TokenUsage | None = None if message is None else usage_of(message.metadata, message.parts)
        self.calls: dict[str, ToolCall] = {}
        self.order: list[str] = []
        """Ids of tool calls in the order in which they began, and MESSAGE where the text did."""
        self.created = _seconds(task.status.timestamp)

    @property
    def state(self) -> TaskState:
        return self.task.status.state

    @property
    def settled(self) -> bool:
        """Whether the turn is over: the task has ended, or waits for the client."""
        return self.state in SETTLED

    @property
    def answered(self) -> bool:
        return self.state is TaskState.COMPLETED or self.state in PAUSED

    def feed(self, event: StreamResponse) -> list[Piece]:
        """Return what is new to the client; nothing once the turn is over."""
        if self.settled:
            return []
        if event.artifact_update is not None:
            return self._text(self._artifact(event.artifact_update))
        if event.status_update is None:
            return []
        apply_status(self.task, event.status_update)
        message = self.task.status.message
        if message is not None:
            self.usage = usage_of(message.metadata, message.parts) or self.usage
        if self.settled:
            return self._text(self._led(self.closing)) if self.answered else []
        return self._tools(message) if message is not None else []

    def text(self) -> str:
        """Return the whole text of the turn."""
        texts = [self._own(artifact) for artifact in self.task.artifacts]
        return BREAK.join(text for text in [*texts, self.closing] if text)

    @property
    def closing(self) -> str:
        """The text at the end: a question, or the agent's last message."""
        message = self.task.status.message
        if not self.answered:
            return ""
        said = ""
        if message is not None:
            said = shown(plain(message.parts)) or question_of(message.metadata, message.parts)
        return said or SILENT.get(self.state, "")

    @property
    def failure(self) -> str:
        """The agent's explanation why there is no answer."""
        message = self.task.status.message
        return (shown(plain(message.parts)) if message is not None else "") or f"The task is {word(self.state)}"

    def _own(self, artifact: Artifact) -> str:
        """Remove the text of earlier turns."""
        return shown(plain(artifact.parts)).removeprefix(self.before.get(artifact.artifact_id, ""))

    def _artifact(self, event: TaskArtifactUpdateEvent) -> str:
        artifact = event.artifact
        key, text = artifact.artifact_id, shown(plain(artifact.parts))
        self.usage = usage_of(artifact.metadata, artifact.parts) or self.usage
        apply_artifact(self.task, event)
        sent = self.sent.get(key)
        if sent is None and event.append is True and key in self.before:
            sent = self.sent[key] = [self.before[key]]
        if sent is None:
            self.before.pop(key, None)
            self.sent[key] = [text]
            return self._led(text)
        owed = self.owed.pop(key, "")
        if event.append is not True:
            owed = "".join(sent)
        if text.startswith(owed):
            new = text[len(owed) :] if any(sent) else self._led(text)
            sent.append(text[len(owed) :])
            return new
        if owed.startswith(text):
            self.owed[key] = owed[len(text) :]
            return ""
        whole = next(shown(plain(one.parts)) for one in self.task.artifacts if one.artifact_id == key)
        self.sent[key] = [whole]
        return self._led(whole.removeprefix(self.before.get(key, "")))

    def _led(self, text: str) -> str:
        return BREAK + text if text and self.spoke else text

    def _text(self, text: str) -> list[Piece]:
        if not text:
            return []
        if not self.spoke:
            self.spoke = True
            self.order.append(MESSAGE)
        return [Piece(text, None)]

    def _tools(self, message: Message) -> list[Piece]:
        found = []
        for call in tool_calls_of(message.metadata, message.parts):
            before = self.calls.get(call.id)
            now = merged(before, call)
            if now == before or (before is None and len(self.calls) >= MAX_TOOL_CALLS):
                continue
            if before is None:
                self.order.append(call.id)
            self.calls[call.id] = now
            found.append(Piece("", now))
        return found


def word(state: TaskState) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def task_of_reply(message: Message) -> Task:
    """Represent a direct reply as a task that has ended with it, and that has no id."""
    status = TaskStatus(state=TaskState.COMPLETED, message=message)
    return Task(id=message.message_id, context_id=message.context_id, status=status)


def _seconds(timestamp: str | None) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
