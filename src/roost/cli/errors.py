"""How a command ends without success; the message tells the user what to do next.

Failed
├── Unreachable    nothing was sent: no host answers
├── Dropped        a host answered, and then the connection was lost
└── Refused        the host answered with an error
"""

from __future__ import annotations

ERROR = 1
USAGE = 2
WAITING = 3
"""The task waits for an answer."""
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
