"""Checkpoints: signed statements about the heads of all tasks, small enough for an auditor to keep.

    {"checkpoint": {"format", "number", "time", "count", "root", "previous"}, "signature": {...}}

`root` covers the leaves: the heads that are new since the previous checkpoint. `previous` is the digest of that
checkpoint, so that each checkpoint covers all checkpoints before it. See docs/adr/0018-checkpoints.md.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from roost.engine.checkpoints import Checkpoint, CheckpointBusy, Checkpoints, Leaf
from roost.engine.ids import timestamp
from roost.engine.store_types import StoreUnavailable
from roost.evidence.json_input import MAX_EXACT
from roost.evidence.keys import CHECKPOINT, check, is_signature, signature
from roost.evidence.merkle import MerkleTree
from roost.identity.card_verification import Jwk
from roost.identity.keys import Keyring
from roost.identity.ports import now_ms
from roost.protocol.canonical import NotCanonical, jcs, read_json

log = logging.getLogger("roost.evidence")

FORMAT = "roost-checkpoint-1"
NO_PREVIOUS = "0" * 64
"""The `previous` of the first checkpoint."""
MAX_STATEMENT = 4096
"""Bytes of a statement."""
PAGE = 500
"""Leaves per read."""
POLL_S = 30.0
"""Seconds between two checks whether a checkpoint is due. Another host may have made it."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"format": str, "number": int, "time": str, "count": int, "root": str, "previous": str}


class BadCheckpoint(Exception):
    """The input is not a checkpoint of a host. The message says why."""


class Statement(Struct, frozen=True):
    """The content of a checkpoint."""

    number: int
    time: str
    count: int
    """The number of leaves."""
    root: str
    previous: str
    signature: dict[str, str]

    def signed(self) -> bytes:
        fields = {"number": self.number, "time": self.time, "count": self.count}
        return jcs({"format": FORMAT, **fields, "root": self.root, "previous": self.previous})

    def digest(self) -> str:
        return sha256(self.signed()).hexdigest()

    def line(self) -> bytes:
        return b'{"checkpoint":%b,"signature":%b}' % (self.signed(), jcs(self.signature))


def read_statement(data: bytes) -> Statement:
    if len(data) > MAX_STATEMENT:
        raise BadCheckpoint(f"a checkpoint has at most {MAX_STATEMENT} bytes")
    try:
        found = read_json(data)
    except NotCanonical as error:
        raise BadCheckpoint(f"not a checkpoint: {error}") from None
    fields = found.get("checkpoint") if isinstance(found, dict) else None
    if not isinstance(fields, dict) or found.keys() != {"checkpoint", "signature"}:
        raise BadCheckpoint("not a checkpoint: it must have the members `checkpoint` and `signature` and no others")
    if fields.get("format") != FORMAT:
        raise BadCheckpoint(f"the format is {fields.get('format')!r}, but this release supports only {FORMAT!r}")
    wrong = [name for name, kind in _FIELDS.items() if type(fields.get(name)) is not kind]
    if wrong or fields.keys() != _FIELDS.keys():
        raise BadCheckpoint(f"not a checkpoint: wrong or unknown fields among {', '.join(wrong or sorted(fields))}")
    numbers = 1 <= fields["number"] <= MAX_EXACT and 0 <= fields["count"] <= MAX_EXACT and fields["time"].isascii()
    if not numbers or not all(_DIGEST.fullmatch(fields[name]) for name in ("root", "previous")):
        raise BadCheckpoint("not a checkpoint: a number, the time or a digest is out of range")
    if not is_signature(found["signature"]):
        raise BadCheckpoint("not a checkpoint: the signature is not an object of two strings")
    del fields["format"]
    return Statement(**fields, signature=found["signature"])


def leaf_line(leaf: Leaf) -> bytes:
    chain, scope = leaf.chain.hex(), leaf.scope.hex()
    return jcs({"task": leaf.task_id, "seq": leaf.seq, "sub": leaf.sub, "chain": chain, "scope": scope})


async def leaves_in(store: Checkpoints, number: int) -> AsyncIterator[Leaf]:
    """Yield the leaves of a checkpoint in order."""
    after = ""
    while page := await store.read_leaves(number, after, PAGE):
        for leaf in page:
            yield leaf
        after = page[-1].task_id


async def leaves_of(store: Checkpoints, task_id: str) -> list[tuple[int, Leaf]]:
    """Return the leaves of a task with the numbers of their checkpoints, in order."""
    found: list[tuple[int, Leaf]] = []
    number = 0
    while page := await store.walk_leaves((task_id, number), PAGE):
        found += [(at, leaf) for at, leaf in page if leaf.task_id == task_id]
        if page[-1][1].task_id != task_id:
            break
        number = page[-1][0]
    return found


async def make(
    store: Checkpoints, keyring: Keyring, unless_after: int | None = None, clock: Callable[[], int] = now_ms
) -> Checkpoint | None:
    """Make a checkpoint, unless one was made after the time `unless_after`, in milliseconds; then return None."""

    async def seal(last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        tree = MerkleTree()
        async for leaf in leaves:
            tree.add(leaf_line(leaf))
        previous = NO_PREVIOUS if last is None else read_statement(last.statement).digest()
        number, at = 1 if last is None else last.number + 1, clock()
        if last is not None and last.time > at:
            log.warning(
                "checkpoint %d lies %d ms in the future of this host's clock: the clock was wrong then or is wrong now,"
                " or somebody edited the store; the host continues to make checkpoints",
                last.number,
                last.time - at,
            )
        unsigned = Statement(number, timestamp(at * 1000), tree.count, tree.root().hex(), previous, {})
        statement = replace(unsigned, signature=await signature(keyring, unsigned.signed(), CHECKPOINT))
        return Checkpoint(number, at, statement.line())

    return await store.make_checkpoint(seal, unless_after)


def signer_of(statement: Statement, keys: Sequence[Jwk]) -> str:
    """Return the thumbprint of the key that signed the statement. Raises BadSignature if none of the keys did."""
    return check(statement.signature, statement.signed(), CHECKPOINT, keys)


class Checkpointer:
    """Makes a checkpoint every `every_s` seconds. Of several hosts, the first one does."""

    def __init__(self, store: Checkpoints, keyring: Keyring, every_s: float) -> None:
        self.store = store
        self.keyring = keyring
        self.every_s = every_s
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.every_s:
            self.task = asyncio.get_running_loop().create_task(self._run(), name="checkpoints")

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(self.every_s, POLL_S))
            try:
                made = await make(self.store, self.keyring, now_ms() - round(self.every_s * 1000))
                if made is not None:
                    log.info("made checkpoint %d", made.number)
            except CheckpointBusy:
                continue
            except StoreUnavailable as error:
                log.warning("cannot make a checkpoint now: %s", error)
            except Exception:
                log.exception("cannot make a checkpoint")
