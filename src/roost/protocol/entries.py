"""What a journal holds: entries, their hash chain, and the internal records among them.

Wire entries (status, artifact) are StreamResponse bytes with a seq of their own. Internal
entries hang off the seq before them, numbered by `sub`, and are shown to nobody.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import Struct

from roost.protocol.types import JSONObject, Message

STATUS = "s"
ARTIFACT = "a"
MESSAGE = "m"
STEP = "p"
ATTEMPT = "n"
REPLY = "r"

NO_CHAIN = bytes(32)


class Entry(NamedTuple):
    seq: int
    sub: int
    kind: str
    data: bytes
    time: int
    """Microseconds since 1970, UTC."""
    ordinal: int
    """How many emissions the agent had made, this one included."""
    chain: bytes


class Received(Struct, omit_defaults=True):
    """MESSAGE: what a client sent, as the agent will see it on every run."""

    message: Message
    metadata: JSONObject | None = None
    accepted_output_modes: list[str] = []
    extensions: list[str] = []


class StepFailure(Struct):
    """The exception that a step raised, as far as it can be told in JSON."""

    module: str
    name: str
    args: list[Any]
    text: str


class StepRecord(Struct, omit_defaults=True):
    """STEP: what a named step came to."""

    name: str
    occurrence: int
    result: Any
    failure: StepFailure | None = None


class AttemptRecord(Struct):
    """ATTEMPT: the agent is called again after its worker died."""

    number: int
    worker: str


def link(chain: bytes, seq: int, sub: int, kind: str, data: bytes, time: int, ordinal: int) -> bytes:
    """The chain after this entry: SHA-256 over the chain before it and all that the entry says."""
    return sha256(b"%b%b %d %d %d %d\n%b" % (chain, kind.encode(), seq, sub, time, ordinal, data)).digest()
