"""The errors that end a command. Their messages say what happened and what to do next.

CommandFailed
├── Unreachable       nothing was sent, because no host answers
├── Dropped           the connection was lost after the host was reached
└── CommandRefused    the host answered with an error
"""

from __future__ import annotations

ERROR = 1
USAGE = 2
WAITING = 3
"""The exit code where the task waits for an answer."""
INTERRUPTED = 130


class CommandFailed(Exception):
    def __init__(self, message: str, code: int = ERROR) -> None:
        super().__init__(message)
        self.code = code


class Unreachable(CommandFailed):
    pass


class Dropped(CommandFailed):
    pass


class CommandRefused(CommandFailed):
    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
