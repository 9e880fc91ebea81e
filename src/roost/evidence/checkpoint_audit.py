"""Audits whether a journal is still what it was when a checkpoint was issued.

The audit walks the checkpoints from the first. Each must name the one before it, be signed, and have the root of its
leaves. Then it recomputes the chain of each task from its entries. The chain must pass through every leaf that any
checkpoint has for the task. The audit holds one page of one task at a time, whatever the size of the journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import groupby, pairwise

import msgspec
from msgspec import Struct

from roost.engine.checkpoints import PRUNED, Checkpoint, Leaf, scope_digest
from roost.engine.ids import timestamp
from roost.engine.ports import AdminStore
from roost.engine.store_types import Scope, Tombstone
from roost.evidence.checkpoint import BadCheckpoint, Statement, leaf_line, leaves_in, read_statement, signer_of
from roost.evidence.faults import CHANGED, OUT_OF_ORDER, BundleFault, Faults
from roost.evidence.json_input import MAX_EXACT
from roost.evidence.keys import BadSignature, UnknownKey
from roost.evidence.merkle import MerkleTree
from roost.identity.card_verification import Jwk
from roost.protocol.entries import NO_CHAIN, Entry, link

PAGE = 500
SEGMENTS = 100
MAX_NAMED = 1000
"""Pruned tasks and unknown keys that an audit lists."""
READ_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""Errors that reading raises for records that no host writes."""

LIMITATIONS = (
    "edits after the checkpoint that you hold, if the checkpoints after it were removed as well: hold a newer one",
    "edits before the checkpoint that you hold was made: it covers the journal as it was then",
    "events that a host never wrote",
    "a task that was replaced by a tombstone, as if it had been pruned: it is reported as pruned",
    "the state and the times in a tombstone: only the scope, the last entry's number and the chain are covered",
    "the copies of the journal that a host makes to answer from, and the columns that listings use",
)
"""The edits that an audit cannot detect."""


class Pruned(Struct):
    task: str
    seq: int
    proven: bool
    """Whether a checkpoint covers the task as it was when it was pruned."""


class Audit(Struct):
    checkpoints: int
    tasks: int
    entries: int
    newer: int
    """Entries after the last leaf of their task, and entries of tasks without a leaf."""
    pruned: list[Pruned]
    more_pruned: int
    signers: list[str]
    unknown: list[str]
    """Checkpoints from the held one on that were signed by an unknown key, so that their author is unknown."""
    faults: list[BundleFault]
    more: int

    @property
    def sound(self) -> bool:
        return not self.faults and not self.unknown


async def audit(store: AdminStore, held: Statement, keys: Sequence[Jwk]) -> Audit:
    """Audit a store. `held` is the checkpoint that the auditor holds, and `keys` may sign checkpoints."""
    return await _Auditor(store, held, keys).run()


class _Auditor:
    def __init__(self, store: AdminStore, held: Statement, keys: Sequence[Jwk]) -> None:
        self.store = store
        self.held = held
        self.keys = keys
        self.faults = Faults()
        self.result = Audit(0, 0, 0, 0, [], 0, [], [], [], 0)

    async def run(self) -> Audit:
        await self._check_checkpoints()
        async for task_id, leaves in self._leaves_by_task():
            try:
                await self._check_task(task_id, leaves)
            except READ_ERRORS as error:
                self._fault("journal", f"the records of the task cannot be read: {error!r}", task=task_id)
        await self._check_tasks_without_leaf()
        self.result.faults = self.faults.found
        self.result.more = self.faults.count - len(self.faults.found)
        return self.result

    # Checkpoints

    async def _check_checkpoints(self) -> None:
        before: Statement | None = None
        number, seen = 0, False
        while page := await self.store.read_checkpoints(number, PAGE):
            for stored in page:
                number += 1
                if stored.number != number:
                    self._fault(
                        f"checkpoint {number}",
                        "the checkpoint is missing",
                        expected=str(number),
                        found=str(stored.number),
                    )
                    number = stored.number
                before = await self._check_checkpoint(stored, before)
                if stored.number == self.held.number:
                    seen = True
                    if before is None or before.signed() != self.held.signed():
                        held = self.held.signed().decode()
                        self._fault(
                            f"checkpoint {number}", "the checkpoint is not the one that you hold", expected=held
                        )
        if not seen:
            self._fault(f"checkpoint {self.held.number}", "the checkpoint that you hold is missing")

    async def _check_checkpoint(self, stored: Checkpoint, before: Statement | None) -> Statement | None:
        number = stored.number
        at = f"checkpoint {number}"
        self.result.checkpoints += 1
        try:
            statement = read_statement(stored.statement)
        except BadCheckpoint as error:
            self._fault(at, str(error))
            return None
        self._check_signature(at, statement)
        if _time(stored.time) != statement.time:
            self._fault(at, "the store has another time for it", expected=statement.time, found=_time(stored.time))
        if statement.number != number:
            self._fault(at, "the statement has another number", expected=str(number), found=str(statement.number))
        if before is not None and statement.previous != before.digest():
            self._fault(
                at, "the statement names another predecessor", expected=before.digest(), found=statement.previous
            )
        tree = MerkleTree()
        async for leaf in leaves_in(self.store, number):
            if _is_leaf(leaf):
                tree.add(leaf_line(leaf))
        if (tree.count, tree.root().hex()) != (statement.count, statement.root):
            found = f"{tree.count}, {tree.root().hex()}"
            self._fault(at, "the leaves were changed", expected=f"{statement.count}, {statement.root}", found=found)
        return statement

    def _check_signature(self, at: str, statement: Statement) -> None:
        try:
            signer = signer_of(statement, self.keys)
            if signer not in self.result.signers:
                self.result.signers.append(signer)
        except UnknownKey as error:
            # The held checkpoint has the digests of those before it, so that their signers do not matter.
            if statement.number >= self.held.number and len(self.result.unknown) < MAX_NAMED:
                self.result.unknown.append(f"{at}: {error}")
        except BadSignature as error:
            self._fault(at, f"the signature is not valid: {error}")

    # Tasks

    async def _check_task(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        self.result.tasks += 1
        self._check_leaf_order(task_id, leaves)
        stored = await self.store.read_task(task_id)
        if stored is None:
            if not await self._is_pruned(task_id, leaves):
                number, leaf = leaves[-1]
                what = f"the task and its tombstone are gone, but checkpoint {number} has the task"
                self._fault("journal", what, task=task_id, seq=leaf.seq)
            return
        self._check_scope(task_id, stored.new.scope, leaves)
        await self._check_entries(task_id, leaves)

    def _check_leaf_order(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        for (_, before), (number, leaf) in pairwise(leaves):
            if leaf.sub != PRUNED and (leaf.seq, leaf.sub) <= (before.seq, before.sub):
                what = f"the task went back: checkpoint {number} has fewer entries than one before it"
                self._fault("journal", what, task=task_id, seq=leaf.seq, sub=leaf.sub)

    def _check_scope(self, task_id: str, scope: Scope, leaves: list[tuple[int, Leaf]]) -> None:
        found = scope_digest(scope)
        for number, leaf in leaves:
            if leaf.scope != found:
                what = f"the tenant, owner or agent is not that of checkpoint {number}"
                self._fault("journal", what, task=task_id, expected=leaf.scope.hex(), found=found.hex())
                return

    async def _is_pruned(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> bool:
        tombstone = await self.store.read_tombstone(task_id)
        if tombstone is not None:
            self._check_tombstone(tombstone, leaves)
        return tombstone is not None

    def _check_tombstone(self, tombstone: Tombstone, leaves: list[tuple[int, Leaf]]) -> None:
        self._check_scope(tombstone.task_id, tombstone.scope, leaves)
        number, leaf = leaves[-1]
        proven = tombstone.chain == leaf.chain and tombstone.seq == leaf.seq
        if not proven and (tombstone.seq < leaf.seq or leaf.sub == PRUNED or tombstone.seq == leaf.seq):
            self._fault(
                "tombstones",
                f"the tombstone does not match the task in checkpoint {number}",
                task=tombstone.task_id,
                seq=tombstone.seq,
                expected=f"{leaf.seq}, {leaf.chain.hex()}",
                found=f"{tombstone.seq}, {tombstone.chain.hex()}",
            )
        if len(self.result.pruned) < MAX_NAMED:
            self.result.pruned.append(Pruned(tombstone.task_id, tombstone.seq, proven))
        else:
            self.result.more_pruned += 1

    async def _check_entries(self, task_id: str, leaves: list[tuple[int, Leaf]]) -> None:
        pending = {(leaf.seq, leaf.sub): (number, leaf) for number, leaf in leaves if leaf.sub != PRUNED}
        last = max(pending, default=(-1, 0))
        chain, before = NO_CHAIN, (0, 0)
        reported = False
        async for entry in self._read_entries(task_id):
            self.result.entries += 1
            position = (entry.seq, entry.sub)
            if position not in ((before[0], before[1] + 1), (before[0] + 1, 0)) and not reported:
                self._entry_fault(task_id, entry, OUT_OF_ORDER, f"after {before}", f"{position}")
                reported = True
            chain, before = link(chain, *entry[:6]), position
            if chain != entry.chain and not reported:
                self._entry_fault(task_id, entry, CHANGED, chain.hex(), entry.chain.hex())
                reported = True
            number, leaf = pending.pop(position, (0, None))
            if leaf is not None and leaf.chain != chain:
                what = f"checkpoint {number} has another chain: this entry, or one before it, was changed"
                self._entry_fault(task_id, entry, what, leaf.chain.hex(), chain.hex())
            self.result.newer += position > last
        if pending and await self.store.read_task(task_id) is None and await self._is_pruned(task_id, leaves):
            return
        for (seq, sub), (number, leaf) in sorted(pending.items()):
            what = f"the entry is gone, but checkpoint {number} has it"
            self._fault("journal", what, task=task_id, seq=seq, sub=sub, expected=leaf.chain.hex())

    async def _read_entries(self, task_id: str) -> AsyncIterator[Entry]:
        """Yield all stored entries, whatever position they are stored under: a host reads some of them otherwise."""
        after: tuple[int, int] | None = None
        try:
            while segments := await self.store.read_segments(task_id, after, SEGMENTS):
                for segment in segments:
                    if not segment.fits:
                        where = f"{segment.seq!r}.{segment.sub!r}"
                        what = f"the segment stored as {where} does not match its entries"
                        self._fault("journal", what, task=task_id)
                    for entry in segment.entries:
                        yield entry
                after = segments[-1][:2]
        except READ_ERRORS as error:
            what = f"the entries after {after or 'the beginning'} cannot be read: {error}"
            self._fault("journal", what, task=task_id)

    async def _check_tasks_without_leaf(self) -> None:
        """Check the chains of tasks that are in no checkpoint. Nothing proves these tasks otherwise."""
        after = ""
        try:
            while page := await self.store.scan_tasks(after, PAGE):
                for new, _ in page:
                    if not await self._has_leaf(new.id):
                        await self._check_entries(new.id, [])
                after = page[-1][0].id
        except READ_ERRORS as error:
            self._fault("journal", f"a task after {after or 'the beginning'} cannot be read: {error}")

    async def _leaves_by_task(self) -> AsyncIterator[tuple[str, list[tuple[int, Leaf]]]]:
        """Yield each task with all its leaves, in the order of the checkpoints."""
        collected: list[tuple[int, Leaf]] = []
        after = ("", 0)
        while page := await self.store.walk_leaves(after, PAGE):
            for task_id, group in groupby(page, key=lambda found: found[1].task_id):
                if collected and collected[0][1].task_id != task_id:
                    yield collected[0][1].task_id, collected
                    collected = []
                collected += [(number, leaf) for number, leaf in group if self._is_readable(number, leaf)]
            after = (page[-1][1].task_id, page[-1][0])
        if collected:
            yield collected[0][1].task_id, collected

    def _is_readable(self, number: int, leaf: Leaf) -> bool:
        if not _is_leaf(leaf):
            self._fault(f"checkpoint {number}", f"a leaf cannot be read: {leaf}")
        return _is_leaf(leaf)

    async def _has_leaf(self, task_id: str) -> bool:
        found = await self.store.walk_leaves((task_id, 0), 1)
        return bool(found) and found[0][1].task_id == task_id

    def _entry_fault(self, task_id: str, entry: Entry, what: str, expected: str, found: str) -> None:
        self._fault("journal", what, task=task_id, seq=entry.seq, sub=entry.sub, expected=expected, found=found)

    def _fault(self, where: str, what: str, **details: object) -> None:
        self.faults.add(where, what, **details)


def _is_leaf(leaf: Leaf) -> bool:
    numbers = all(type(number) is int and PRUNED <= number <= MAX_EXACT for number in (leaf.seq, leaf.sub))
    return numbers and isinstance(leaf.task_id, str)


def _time(ms: int) -> str:
    try:
        return timestamp(ms * 1000)
    except (ValueError, ArithmeticError, OSError):
        return f"{ms} ms"
