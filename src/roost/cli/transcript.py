"""Shows a stream to people: artifacts grow on stdout as they arrive, everything else is on stderr."""

from __future__ import annotations

import sys
from typing import Protocol

from roost.cli.client import ReceivedEvent
from roost.cli.output import note, plain, text_of
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import Artifact, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus


class Screen(Protocol):
    def show(self, event: ReceivedEvent) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Contradiction(Exception):
    """The artifact differs from what was printed of it."""


class Growing:
    """The text of one artifact. Printed text stays, and after a restart the host may repeat a part of it."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.length = 0
        self.position = 0
        """The number of printed characters that the artifact has so far."""
        self.line_start = True

    def restart(self) -> None:
        self.position = 0
        self.line_start = True

    def extend(self, text: str) -> str:
        """Add text, and return the part of it that is not printed yet."""
        if not text:
            return ""
        self.line_start = text.endswith("\n")
        if self.position == self.length:
            new = text
        else:
            known = "".join(self.printed)
            again = known[self.position : self.position + len(text)]
            if not text.startswith(again):
                self.printed, self.length = [known[: self.position]], self.position
                self.extend(text)
                raise Contradiction
            self.printed = [known]
            new = text[len(again) :]
        self.printed.append(new)
        self.length += len(new)
        self.position += len(text)
        return new

    def cut(self) -> bool:
        """Forget what is printed beyond the artifact's end. True if there was any."""
        if self.position == self.length:
            return False
        self.printed, self.length = ["".join(self.printed)[: self.position]], self.position
        return True

    def whole(self) -> str:
        return "".join(self.printed)


class Transcript:
    """Prints the events of one task. With `known`, the artifacts that the task has at first were printed before."""

    def __init__(self, *, known: bool) -> None:
        self.known = known
        self.artifacts: dict[str, Growing] = {}
        self.current = ""
        self.mid_line = False

    def show(self, event: ReceivedEvent) -> None:
        response = event.response
        if response.task is not None:
            self._open(response.task)
        elif response.message is not None:
            self._print(text_of(response.message.parts))
        elif response.status_update is not None:
            self._status(response.status_update.status)
        elif response.artifact_update is not None:
            self._update(response.artifact_update)

    def note(self, text: str) -> None:
        if self.mid_line and sys.stdout.isatty():
            self._print("\n")
        note(text)

    def end(self) -> None:
        """End the last line, and correct what the agent has taken back. Nothing more will come."""
        for artifact in self.artifacts.values():
            if artifact.cut():
                self._correct(artifact)
        if self.mid_line:
            self._print("\n")

    def _open(self, task: Task) -> None:
        for artifact in task.artifacts:
            if self.known:
                self.artifacts[artifact.artifact_id] = Growing()
                self.artifacts[artifact.artifact_id].extend(text_of(artifact.parts))
            else:
                self._grow(artifact, append=False)
        self._status(task.status)

    def _update(self, event: TaskArtifactUpdateEvent) -> None:
        self._grow(event.artifact, append=event.append is True)

    def _grow(self, artifact: Artifact, *, append: bool) -> None:
        growing = self.artifacts.setdefault(artifact.artifact_id, Growing())
        if not append:
            growing.restart()
        try:
            new = growing.extend(text_of(artifact.parts, line_start=growing.line_start))
        except Contradiction:
            self._correct(growing)
            return
        if new and self.current != artifact.artifact_id:
            if self.mid_line:
                self._print("\n")
            self.current = artifact.artifact_id
        self._print(new)

    def _correct(self, growing: Growing) -> None:
        if self.mid_line:
            self._print("\n")
        self.note("the agent began again with different text; this is all of it:")
        self._print(growing.whole())

    def _status(self, status: TaskStatus) -> None:
        if status.message is None:
            return
        text = text_of(status.message.parts)
        if status.state is TaskState.COMPLETED:
            if self.mid_line:
                self._print("\n")
            self._print(text)
        elif status.state in PAUSED or status.state not in TERMINAL:
            self.note(text)

    def _print(self, text: str) -> None:
        if not text:
            return
        self.mid_line = not text.endswith("\n")
        sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
