"""What can go wrong with evidence, in the adapter's own words: a kind and a message."""

from __future__ import annotations

import enum


class ErrorKind(enum.StrEnum):
    MEASUREMENT = "measurement"
    """The input cannot be read, or lacks what it must have."""
    INFRASTRUCTURE = "infrastructure"
    """The input could not be kept."""
    UNSUPPORTED_VERSION = "unsupported_protocol_version"
    LOSSINESS = "strict_lossiness_violation"
    """In strict mode: it could only be told with a loss."""


class EvidenceError(Exception):
    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def plain(self) -> dict[str, str]:
        return {"kind": self.kind.value, "message": self.message}


def measurement(message: str) -> EvidenceError:
    return EvidenceError(ErrorKind.MEASUREMENT, message)
