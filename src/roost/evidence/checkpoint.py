"""Checkpoints: a signed word on every task's head, so small that an auditor can keep it.

    {"checkpoint": {"format", "number", "time", "count", "root", "previous"}, "signature": {...}}

`root` is over the leaves, the heads that are new since the checkpoint before; `previous` is the digest of that one.
So each stands for all before it. See docs/adr/0018-checkpoints.md.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from roost.engine.ids import timestamp
from roost.engine.ports import Checkpoint, CheckpointBusy, Checkpoints, Leaf, StoreUnavailable
from roost.evidence.checkpoint_tree import Tree
from roost.evidence.keys import CHECKPOINT, check, is_signature, signature
from roost.identity.card_verification import Jwk
from roost.identity.keys import Keyring
from roost.identity.ports import now_ms
from roost.protocol.canonical import NotCanonical, jcs, read_json

log = logging.getLogger("roost.evidence")

FORMAT = "roost-checkpoint-1"
NOTHING = "0" * 64
"""What comes before the first one."""
MAX_STATEMENT = 4096
PAGE = 500
"""Leaves that are read at once."""
BIG = 2**53
"""What has no canonical form, from here on."""
LOOK_S = 30.0
"""How often a host looks whether one is due: another may have made it."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"format": str, "number": int, "time": str, "count": int, "root": str, "previous": str}


class BadCheckpoint(Exception):
    """It is not what a host makes; the message says why."""


class Statement(Struct, frozen=True):
    """What a checkpoint says."""

    number: int
    time: str
    count: int
    """Leaves."""
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
        raise BadCheckpoint(f"it is not a checkpoint: {error}") from None
    said = found.get("checkpoint") if isinstance(found, dict) else None
    if not isinstance(said, dict) or found.keys() != {"checkpoint", "signature"}:
        raise BadCheckpoint("it is not a checkpoint: there is no `checkpoint` and `signature` in it")
    if said.get("format") != FORMAT:
        raise BadCheckpoint(f"its format is {said.get('format')!r}, and this release knows {FORMAT!r}")
    wrong = [name for name, kind in _FIELDS.items() if type(said.get(name)) is not kind]
    if wrong or said.keys() != _FIELDS.keys():
        raise BadCheckpoint(f"it is not a checkpoint: look at {', '.join(wrong or sorted(said))}")
    numbers = 1 <= said["number"] < BIG and 0 <= said["count"] < BIG and said["time"].isascii()
    if not numbers or not all(_DIGEST.fullmatch(said[name]) for name in ("root", "previous")):
        raise BadCheckpoint("it is not a checkpoint: a number or a digest in it is none")
    if not is_signature(found["signature"]):
        raise BadCheckpoint("it is not a checkpoint: its signature is no object of two strings")
    del said["format"]
    return Statement(**said, signature=found["signature"])


def leaf_line(leaf: Leaf) -> bytes:
    chain, scope = leaf.chain.hex(), leaf.scope.hex()
    return jcs({"task": leaf.task_id, "seq": leaf.seq, "sub": leaf.sub, "chain": chain, "scope": scope})


async def leaves_in(store: Checkpoints, number: int) -> AsyncIterator[Leaf]:
    """Those of a checkpoint, in their order."""
    after = ""
    while some := await store.read_leaves(number, after, PAGE):
        for leaf in some:
            yield leaf
        after = some[-1].task_id


async def make(
    store: Checkpoints, keyring: Keyring, unless_after: int | None = None, clock: Callable[[], int] = now_ms
) -> Checkpoint | None:
    """None if there is one that was made after that time."""

    async def seal(last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        tree = Tree()
        async for leaf in leaves:
            tree.add(leaf_line(leaf))
        previous = NOTHING if last is None else read_statement(last.statement).digest()
        number, at = 1 if last is None else last.number + 1, clock()
        if last is not None and last.time > at:
            log.warning(
                "checkpoint %d is of the future by this host's clock, now %d ms: the clock was wrong then or is now,"
                " or the store was edited; checkpoints go on",
                last.number,
                last.time - at,
            )
        said = Statement(number, timestamp(at * 1000), tree.count, tree.root().hex(), previous, {})
        said = replace(said, signature=await signature(keyring, said.signed(), CHECKPOINT))
        return Checkpoint(number, at, said.line())

    return await store.make_checkpoint(seal, unless_after)


def signer_of(said: Statement, keys: Sequence[Jwk]) -> str:
    """The thumbprint of the key that signed it; BadSignature if it is none of these."""
    return check(said.signature, said.signed(), CHECKPOINT, keys)


class Checkpointer:
    """Makes one every `every_s` seconds, on whichever of the hosts is first."""

    def __init__(self, store: Checkpoints, keyring: Keyring, every_s: float) -> None:
        self.store = store
        self.keyring = keyring
        self.every_s = every_s
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.every_s:
            self.task = asyncio.get_running_loop().create_task(self._keep(), name="checkpoints")

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(min(self.every_s, LOOK_S))
            try:
                made = await make(self.store, self.keyring, now_ms() - round(self.every_s * 1000))
                if made is not None:
                    log.info("checkpoint %d was made", made.number)
            except CheckpointBusy:
                continue
            except StoreUnavailable as error:
                log.warning("no checkpoint can be made now: %s", error)
            except Exception:
                log.exception("no checkpoint can be made")
