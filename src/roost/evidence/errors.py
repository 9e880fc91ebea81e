"""Errors of the conversion to events. Each has a kind and a message, as in Assay's adapter."""

from __future__ import annotations

import enum


class ErrorKind(enum.StrEnum):
    MEASUREMENT = "measurement"
    """The input cannot be read, or a required field is missing."""
    INFRASTRUCTURE = "infrastructure"
    """The input could not be stored."""
    UNSUPPORTED_VERSION = "unsupported_protocol_version"
    LOSSINESS = "strict_lossiness_violation"
    """The conversion would lose information, which strict mode does not allow."""


class EvidenceError(Exception):
    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def plain(self) -> dict[str, str]:
        return {"kind": self.kind.value, "message": self.message}


class InputLimitReached(EvidenceError):
    """The converter takes no more documents, because the input as a whole exceeds a limit."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.MEASUREMENT, message)


def measurement(message: str) -> EvidenceError:
    return EvidenceError(ErrorKind.MEASUREMENT, message)
