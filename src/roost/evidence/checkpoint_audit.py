"""Whether a journal is still what it was when a checkpoint was given out.

The checkpoints are walked from the first: each has to name the one before it, to be signed, and to have the root that
its leaves have. Then the tasks: the chain of each is computed anew from its entries, and has to pass through every leaf
that any checkpoint has of it. Holds one task's page at a time, whatever the journal's size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import groupby, pairwise

import msgspec
from msgspec import Struct

from roost.engine.checkpoint_leaves import scope_digest
from roost.engine.ids import timestamp
from roost.engine.ports import PRUNED, AdminStore, Checkpoint, Leaf, Scope, Tombstone
from roost.evidence.checkpoint import BIG, BadCheckpoint, Statement, leaf_line, leaves_in, read_statement, signer_of
from roost.evidence.checkpoint_tree import Tree
from roost.evidence.keys import BadSignature, UnknownKey
from roost.evidence.verify_events import CHANGED, OUT_OF_ORDER
from roost.evidence.verify_faults import BundleFault, Faults
from roost.identity.card_verification import Jwk
from roost.protocol.entries import NO_CHAIN, Entry, link

PAGE = 500
SEGMENTS = 100
MOST_NAMED = 1000
UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What reading raises where somebody has written what no host writes."""

BLIND = (
    "what came after the checkpoint that you hold, if the checkpoints after it were removed as well: hold a newer one",
    "what was changed before the checkpoint that you hold was made: it stands for the journal as it was then",
    "what a host never wrote",
    "a task that was removed together with a tombstone like that of a pruned one: it is named as pruned",
    "what a tombstone says beside whose task it was, its last entry's number and its chain: the state and the times",
    "copies that a host makes of its journal to answer from, and the columns that lists go by",
)
"""What an audit cannot detect."""


class Pruned(Struct):
    task: str
    seq: int
    proven: bool
    """A checkpoint has the task as it was when it was pruned."""


class Audit(Struct):
    checkpoints: int
    tasks: int
    entries: int
    newer: int
    """Entries after the last leaf of their task, and those of tasks without one."""
    pruned: list[Pruned]
    more_pruned: int
    signers: list[str]
    unknown: list[str]
    """Checkpoints from the held one on whose key is not at hand: whose word they are, is not known."""
    faults: list[BundleFault]
    more: int

    @property
    def sound(self) -> bool:
        return not self.faults and not self.unknown


async def audit(store: AdminStore, held: Statement, keys: Sequence[Jwk]) -> Audit:
    """`keys` are those that checkpoints may be signed with."""
    return await _Auditor(store, held, keys).run()


class _Auditor:
    def __init__(self, store: AdminStore, held: Statement, keys: Sequence[Jwk]) -> None:
        self.store = store
        self.held = held
        self.keys = keys
        self.faults = Faults()
        self.result = Audit(0, 0, 0, 0, [], 0, [], [], [], 0)

    async def run(self) -> Audit:
        await self._checkpoints()
        async for task_id, leaves in self._by_task():
            try:
                await self._task(task_id, leaves)
            except UNREADABLE as error:
                self._fault("journal", f"what is stored of it cannot be read: {error!r}", task=task_id)
        await self._newcomers()
        self.result.faults = self.faults.found
        self.result.more = self.faults.count - len(self.faults.found)
        return self.result

    # Checkpoints

    async def _checkpoints(self) -> None:
        before: Statement | None = None
        number, seen = 0, False
        while some := await self.store.read_checkpoints(number, PAGE):
            for stored in some:
                number += 1
                if stored.number != number:
                    self._fault(f"checkpoint {number}", "it is missing", expected=str(number), found=str(stored.number))
                    number = stored.number
                before = await self._checkpoint(stored, before)
                if stored.number == self.held.number:
                    seen = True
                    if before is None or before.signed() != self.held.signed():
                        held = self.held.signed().decode()
                        self._fault(f"checkpoint {number}", "it is not the one that you hold", expected=held)
        if not seen:
            self._fault(f"checkpoint {self.held.number}", "it is the one that you hold, and it is missing")

    async def _checkpoint(self, stored: Checkpoint, before: Statement | None) -> Statement | None:
        number = stored.number
        at = f"checkpoint {number}"
        self.result.checkpoints += 1
        try:
            said = read_statement(stored.statement)
        except BadCheckpoint as error:
            self._fault(at, str(error))
            return None
        self._signature(at, said)
        if _time(stored.time) != said.time:
            self._fault(at, "it is kept under another time", expected=said.time, found=_time(stored.time))
        if said.number != number:
            self._fault(at, "it says another number", expected=str(number), found=str(said.number))
        if before is not None and said.previous != before.digest():
            self._fault(at, "it names another one before it", expected=before.digest(), found=said.previous)
        tree = Tree()
        async for leaf in leaves_in(self.store, number):
            if _is_leaf(leaf):
                tree.add(leaf_line(leaf))
        if (tree.count, tree.root().hex()) != (said.count, said.root):
            found = f"{tree.count}, {tree.root().hex()}"
            self._fault(at, "its leaves were changed", expected=f"{said.count}, {said.root}", found=found)
        return said

    def _signature(self, at: str, said: Statement) -> None:
        try:
            signer = signer_of(said, self.keys)
            if signer not in self.result.signers:
                self.result.signers.append(signer)
        except UnknownKey as error:
            # The held one has the digests of those before it: whoever signed them.
            if said.number >= self.held.number and len(self.result.unknown) < MOST_NAMED:
                self.result.unknown.append(f"{at}: {error}")
        except BadSignature as error:
            self._fault(at, f"its signature is not valid: {error}")

    # Tasks

    async def _task(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        self.result.tasks += 1
        self._in_order(task_id, leaves)
        stored = await self.store.read_task(task_id)
        if stored is None:
            if not await self._is_pruned(task_id, leaves):
                number, leaf = leaves[-1]
                what = f"the task is gone, with its tombstone: checkpoint {number} has it"
                self._fault("journal", what, task=task_id, seq=leaf.seq)
            return
        self._scope(task_id, stored.new.scope, leaves)
        await self._entries(task_id, leaves)

    def _in_order(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        for (_, one), (number, other) in pairwise(leaves):
            if other.sub != PRUNED and (other.seq, other.sub) <= (one.seq, one.sub):
                what = f"it went back: checkpoint {number} has fewer entries than one before it"
                self._fault("journal", what, task=task_id, seq=other.seq, sub=other.sub)

    def _scope(self, task_id: str, scope: Scope, leaves: list[tuple[int, Leaf]]) -> None:
        found = scope_digest(scope)
        for number, leaf in leaves:
            if leaf.scope != found:
                what = f"it is not the tenant's, owner's or agent's that checkpoint {number} has"
                self._fault("journal", what, task=task_id, expected=leaf.scope.hex(), found=found.hex())
                return

    async def _is_pruned(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> bool:
        stone = await self.store.read_tombstone(task_id)
        if stone is not None:
            self._tombstone(stone, leaves)
        return stone is not None

    def _tombstone(self, stone: Tombstone, leaves: list[tuple[int, Leaf]]) -> None:
        self._scope(stone.task_id, stone.scope, leaves)
        number, leaf = leaves[-1]
        proven = stone.chain == leaf.chain and stone.seq == leaf.seq
        if not proven and (stone.seq < leaf.seq or leaf.sub == PRUNED or stone.seq == leaf.seq):
            self._fault(
                "tombstones",
                f"it is not of the task that checkpoint {number} has",
                task=stone.task_id,
                seq=stone.seq,
                expected=f"{leaf.seq}, {leaf.chain.hex()}",
                found=f"{stone.seq}, {stone.chain.hex()}",
            )
        if len(self.result.pruned) < MOST_NAMED:
            self.result.pruned.append(Pruned(stone.task_id, stone.seq, proven))
        else:
            self.result.more_pruned += 1

    async def _entries(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        wanted = {(leaf.seq, leaf.sub): (number, leaf) for number, leaf in leaves if leaf.sub != PRUNED}
        last = max(wanted, default=(-1, 0))
        chain, at = NO_CHAIN, (0, 0)
        told = False
        async for entry in self._read(task_id):
            self.result.entries += 1
            place = (entry.seq, entry.sub)
            if place not in ((at[0], at[1] + 1), (at[0] + 1, 0)) and not told:
                self._entry(task_id, entry, OUT_OF_ORDER, f"after {at}", f"{place}")
                told = True
            chain, at = link(chain, *entry[:6]), place
            if chain != entry.chain and not told:
                self._entry(task_id, entry, CHANGED, chain.hex(), entry.chain.hex())
                told = True
            number, leaf = wanted.pop(place, (0, None))
            if leaf is not None and leaf.chain != chain:
                what = f"checkpoint {number} has another chain: this entry, or one before it, was changed"
                self._entry(task_id, entry, what, leaf.chain.hex(), chain.hex())
            self.result.newer += place > last
        if wanted and await self.store.read_task(task_id) is None and await self._is_pruned(task_id, leaves):
            return
        for (seq, sub), (number, leaf) in sorted(wanted.items()):
            what = f"the entry is gone: checkpoint {number} has it"
            self._fault("journal", what, task=task_id, seq=seq, sub=sub, expected=leaf.chain.hex())

    async def _read(self, task_id: str) -> AsyncIterator[Entry]:
        """All that is stored, not only what is found by its place: a host reads some of it in other ways."""
        after: tuple[int, int] | None = None
        try:
            while segments := await self.store.read_segments(task_id, after, SEGMENTS):
                for segment in segments:
                    if not segment.fits:
                        where = f"{segment.seq!r}.{segment.sub!r}"
                        self._fault("journal", f"a segment is kept as {where}, and that is not it", task=task_id)
                    for entry in segment.entries:
                        yield entry
                after = segments[-1][:2]
        except UNREADABLE as error:
            what = f"entries after {after or 'the beginning'} cannot be read: {error}"
            self._fault("journal", what, task=task_id)

    async def _newcomers(self) -> None:
        """Tasks that no checkpoint has: nothing proves them, but their links have to hold."""
        after = ""
        try:
            while some := await self.store.scan_tasks(after, PAGE):
                for new, _ in some:
                    if not await self._has_leaf(new.id):
                        await self._entries(new.id, [])
                after = some[-1][0].id
        except UNREADABLE as error:
            self._fault("journal", f"a task after {after or 'the beginning'} cannot be read: {error}")

    async def _by_task(self) -> AsyncIterator[tuple[str, list[tuple[int, Leaf]]]]:
        """Each task with all its leaves, by number."""
        kept: list[tuple[int, Leaf]] = []
        after = ("", 0)
        while some := await self.store.walk_leaves(after, PAGE):
            for task_id, group in groupby(some, key=lambda found: found[1].task_id):
                if kept and kept[0][1].task_id != task_id:
                    yield kept[0][1].task_id, kept
                    kept = []
                kept += [(number, leaf) for number, leaf in group if self._reads(number, leaf)]
            after = (some[-1][1].task_id, some[-1][0])
        if kept:
            yield kept[0][1].task_id, kept

    def _reads(self, number: int, leaf: Leaf) -> bool:
        if not _is_leaf(leaf):
            self._fault(f"checkpoint {number}", f"a leaf of it cannot be read: {leaf}")
        return _is_leaf(leaf)

    async def _has_leaf(self, task_id: str) -> bool:
        found = await self.store.walk_leaves((task_id, 0), 1)
        return bool(found) and found[0][1].task_id == task_id

    def _entry(self, task_id: str, entry: Entry, what: str, expected: str, found: str) -> None:
        self._fault("journal", what, task=task_id, seq=entry.seq, sub=entry.sub, expected=expected, found=found)

    def _fault(self, where: str, what: str, **more: object) -> None:
        self.faults.add(where, what, **more)


def _is_leaf(leaf: Leaf) -> bool:
    numbers = all(type(number) is int and PRUNED <= number < BIG for number in (leaf.seq, leaf.sub))
    return numbers and isinstance(leaf.task_id, str)


def _time(ms: int) -> str:
    try:
        return timestamp(ms * 1000)
    except (ValueError, ArithmeticError, OSError):
        return f"{ms} ms"
