"""The entries of a journal, their hash chain, and the records in internal entries.

Wire entries (status, artifact) are StreamResponse bytes with a seq of their own. Internal entries have the seq of the
wire entry before them and are numbered by `sub`; no client sees them.
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
    """The number of emissions that the agent had made, including this one."""
    chain: bytes
    """The hash chain after this entry: see `link`."""


class Received(Struct, omit_defaults=True):
    """The record of a MESSAGE entry: what a client sent, as the agent sees it on every run."""

    message: Message
    metadata: JSONObject | None = None
    accepted_output_modes: list[str] = []
    extensions: list[str] = []


class StepFailure(Struct):
    """The exception that a step raised, as far as JSON can represent it."""

    module: str
    name: str
    args: list[Any]
    text: str


class StepRecord(Struct, omit_defaults=True):
    """The record of a STEP entry: the result or the failure of a named step."""

    name: str
    occurrence: int
    result: Any
    failure: StepFailure | None = None


ORDINARY = "ordinary"
WAITS = "waits"
FEW = "few"
ALONE = "alone"
PAST = "past"
"""The manners in which a worker runs a task again: like any other; or the task waits for the quarantine, runs there
with few others or alone, and has passed it."""


class AttemptRecord(Struct, omit_defaults=True):
    """The record of an ATTEMPT entry: the agent is called again after its worker was lost.

    An earlier release wrote only the first two fields, and always meant a death.
    """

    number: int
    worker: str
    manner: str = ""
    lost: str = ""
    """The worker that was lost; empty if this entry only says how the task is run."""
    tasks: int = 1
    """The active tasks that the lost worker had."""
    company: int = 0
    """Other runs that had begun shortly before this one entered alone, or began while it was tried."""


def link(chain: bytes, seq: int, sub: int, kind: str, data: bytes, time: int, ordinal: int) -> bytes:
    """Return the chain after an entry: SHA-256 over the chain before it and all fields of the entry."""
    made = sha256(b"%b%b %d %d %d %d\n" % (chain, kind.encode(), seq, sub, time, ordinal))
    made.update(data)
    return made.digest()
