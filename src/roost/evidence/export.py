"""Makes a bundle of tasks, in the room of a few entries whatever their number: a member is written to a file first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from copy import copy
from hashlib import sha256
from typing import IO, NamedTuple

from msgspec import json, to_builtins

from roost._version import VERSION
from roost.engine.checkpoint_leaves import scope_digest
from roost.engine.ports import AdminStore, NewTask, Tombstone
from roost.evidence import bundle
from roost.evidence.bundle import BundleLimits, Counts, Manifest, Producer, Roots
from roost.evidence.checkpoint_tree import Tree
from roost.evidence.errors import EvidenceError
from roost.evidence.events import EventBuilder, EvidenceEvent, rfc3339, text, word
from roost.evidence.export_parts import Parts
from roost.evidence.export_proofs import MOST_PROVEN, LatestLeaves, proofs
from roost.evidence.export_selection import Picking, Selection, check_since
from roost.evidence.keys import MANIFEST, signature
from roost.identity.keys import Keyring
from roost.protocol.canonical import jcs
from roost.protocol.entries import Entry

FIRST_PAGE, PAGE = 64, 128
"""Entries."""
PAGE_BYTES = 8 << 20
"""Of entries that are as long as the longest of the page before."""
WORK = 256 * 1024
"""Bytes that are told before others have their turn. An entry of more is told in a thread."""
EACH = WORK // 64
"""What an entry counts beside its bytes."""
HASH_AT = slice(len(b'{"assaycontenthash":"'), len(b'{"assaycontenthash":"sha256:') + 64)
"""Where an event has its content hash."""


class TooMuch(Exception):
    """The message says what to do."""


class Altered(Exception):
    """A task was not left alone while it was read."""


class Source(NamedTuple):
    store: AdminStore
    keyring: Keyring
    cards: Mapping[str, bytes] = {}
    """Signed cards, by agent; where there is no host, there are none."""


async def export(
    source: Source,
    selection: Selection,
    out: IO[bytes],
    limits: BundleLimits = BundleLimits(),  # noqa: B008
) -> Manifest:
    """Write the bundle to `out`. NothingFound, TooMuch or Altered, and nothing is written, if there is none to make."""
    with Parts() as parts:
        made = _Export(source, selection, limits, parts)
        manifest = await made.collect()
        sealed = jcs(to_builtins(manifest))
        signed = jcs(await signature(source.keyring, sealed, MANIFEST))
        await asyncio.to_thread(parts.write, out, sealed, signed)
    return manifest


class _Export:
    def __init__(self, source: Source, selection: Selection, limits: BundleLimits, parts: Parts) -> None:
        self.store, self.keyring, self.cards = source
        self.selection = selection
        self.limits = limits
        self.parts = parts
        self.counts = Counts()
        self.run = sha256()
        self.heads = Tree()
        self.held = LatestLeaves()

    async def collect(self) -> Manifest:
        agents: set[str] = set()
        await check_since(self.store, self.selection)
        picking = Picking(self.store, self.selection)
        async for new in picking.tasks():
            agents.add(new.scope.agent)
            await self._task(new)
        async for stone in picking.tombstones():
            agents.add(stone.scope.agent)
            self._tombstone(stone)
        picking.check_agent(self.cards)
        self._add_cards(agents)
        for line in await proofs(self.store, self.held):
            self.parts[bundle.PROOFS].line(line)
            self.counts.proofs += 1
        await self._checkpoints()
        keys = await self.keyring.evidence_keys()
        self.parts.put(bundle.KEYS, jcs({"keys": [json.decode(key.public) for key in keys]}))
        return Manifest(
            format=bundle.FORMAT,
            profile=bundle.PROFILE,
            producer=Producer("roost", VERSION),
            signer=keys[0].kid,
            redacted=bundle.REDACTED if self.selection.redact else [],
            roots=Roots(f"sha256:{self.run.hexdigest()}", self.heads.root().hex()),
            counts=self.counts,
            members=[part.member() for part in self.parts.in_order()],
        )

    async def _task(self, new: NewTask) -> None:
        before: Entry | None = None
        last: Entry | None = None
        teller, told, work = EventBuilder(new), 0, 0
        mark, counts, run = self.parts.mark(), copy(self.counts), self.run.copy()
        async for entries in _pages(self.store, new.id):
            self.counts.events += len(entries)
            if self.counts.events > self.limits.events:
                raise TooMuch(
                    f"there are more than {self.limits.events} entries: choose fewer tasks, or raise --max-events here"
                    " and when the bundle is verified"
                )
            for entry in entries:
                if len(entry.data) > WORK:
                    await asyncio.to_thread(self._entry, new, teller, entry, told)
                else:
                    self._entry(new, teller, entry, told)
                told += 1
                work += len(entry.data) + EACH
                if work >= WORK:
                    work = 0
                    await asyncio.sleep(0)
                before, last = last, entry
        if last is None or not await self._is_there(new.id, before, last):
            if await self.store.read_tombstone(new.id) is None:
                raise Altered(f"task {new.id} lost entries while it was read, and there is no tombstone of it")
            self.parts.cut(mark)
            self.counts, self.run = counts, run
            return
        self.counts.tasks += 1
        whose = {} if self.selection.redact else {"owner": new.scope.owner, "tenant": new.scope.tenant}
        line = jcs(
            {
                "agent": new.scope.agent,
                "chain": last.chain.hex(),
                "context": new.context_id,
                "created": rfc3339(new.created),
                "entries": told,
                "scope": scope_digest(new.scope).hex(),
                "seq": last.seq,
                "sub": last.sub,
                "task": new.id,
                **whose,
            }
        )
        self.heads.add(line)
        self.parts[bundle.TASKS].line(line)
        if self.counts.tasks <= MOST_PROVEN:
            await self.held.look_up(self.store, new.id, (last.seq, last.sub))
        else:
            self.held.clear()

    async def _is_there(self, task_id: str, before: Entry | None, last: Entry) -> bool:
        """Still: a task that is pruned goes with all its entries, and what was read of it may be a part."""
        seq, sub = (-1, 0) if before is None else (before.seq, before.sub)
        found = await self.store.read_entries(task_id, seq, 1, wire=False, sub=sub)
        return bool(found) and found[0].chain == last.chain

    def _entry(self, new: NewTask, teller: EventBuilder, entry: Entry, place: int) -> None:
        event = self._event(teller, entry, place)
        shown = b"null" if event is None else event.line()
        if event is not None:
            self.run.update(shown[HASH_AT] + b"\n")
        raw = _reference(entry.data, "redacted") if self.selection.redact else _raw(entry.data)
        if event is not None and self.selection.redact:
            shown = _without_data(event, shown)
        line = _line(new, entry, shown, raw)
        if len(line) > bundle.MAX_LINE or bundle.too_deep(line):
            shown = b"null" if event is None else _without_data(event, event.line())
            line = _line(new, entry, shown, raw)
        if len(line) > bundle.MAX_LINE:
            self._apart(entry.data)
            line = _line(new, entry, shown, _reference(entry.data, "member"))
        self.parts[bundle.EVENTS].line(line)

    def _event(self, teller: EventBuilder, entry: Entry, place: int) -> EvidenceEvent | None:
        try:
            return teller.event(entry, place)
        except EvidenceError:
            self.counts.untold += 1
            return None

    def _apart(self, data: bytes) -> None:
        name = f"raw/{sha256(data).hexdigest()}"
        if name not in self.parts.by_name:
            self.counts.raw += 1
            self.parts.put(name, data)

    def _tombstone(self, stone: Tombstone) -> None:
        self.counts.tombstones += 1
        whose = {} if self.selection.redact else {"owner": stone.scope.owner, "tenant": stone.scope.tenant}
        self.parts[bundle.TOMBSTONES].line(
            jcs(
                {
                    "agent": stone.scope.agent,
                    "chain": stone.chain.hex(),
                    "pruned": rfc3339(stone.pruned * 1000),
                    "scope": scope_digest(stone.scope).hex(),
                    "seq": stone.seq,
                    "state": stone.state.value,
                    "statusTime": rfc3339(stone.status_time * 1000),
                    "task": stone.task_id,
                    **whose,
                }
            )
        )

    def _add_cards(self, agents: Iterable[str]) -> None:
        for agent in agents:
            if agent in self.cards:
                self.counts.cards += 1
                self.parts.put(bundle.card_name(agent), self.cards[agent])

    async def _checkpoints(self) -> None:
        """From the one that was asked for, or the first that a proof is about; with none of those, the newest alone."""
        wanted = [number for number, _ in self.held.leaves.values()]
        if self.selection.since_checkpoint is not None:
            wanted.append(self.selection.since_checkpoint)
        after = min(wanted, default=2**62) - 1
        newest = b""
        number = 0
        while some := await self.store.read_checkpoints(number, 1000):
            for checkpoint in some:
                newest = checkpoint.statement
                if checkpoint.number > after:
                    self.counts.checkpoints += 1
                    self.parts[bundle.CHECKPOINTS].line(newest)
            number = some[-1].number
        if newest and not self.counts.checkpoints:
            self.counts.checkpoints = 1
            self.parts[bundle.CHECKPOINTS].line(newest)


async def _pages(store: AdminStore, task_id: str) -> AsyncIterator[list[Entry]]:
    """Of fewer entries where they are long."""
    seq, sub, limit = -1, 0, FIRST_PAGE
    while entries := await store.read_entries(task_id, seq, limit, wire=False, sub=sub):
        yield entries
        if len(entries) < limit:
            return
        seq, sub = entries[-1].seq, entries[-1].sub
        longest = max(len(entry.data) for entry in entries)
        limit = max(1, min(PAGE, 2 * limit, PAGE_BYTES // max(1, longest)))


def _line(new: NewTask, entry: Entry, event: bytes, raw: bytes) -> bytes:
    """Canonical: names in their order."""
    return b'{"chain":"%b","event":%b,"kind":%b,"ordinal":%d,"raw":%b,"seq":%d,"sub":%d,"task":%b,"time":%d}' % (
        entry.chain.hex().encode(),
        event,
        word(entry.kind),
        entry.ordinal,
        raw,
        entry.seq,
        entry.sub,
        word(new.id),
        entry.time,
    )


def _raw(data: bytes) -> bytes:
    """The bytes as a string; as an object where they are no text."""
    try:
        return text(data.decode())
    except UnicodeDecodeError:
        return b'{"hex":"%b"}' % data.hex().encode()


def _reference(data: bytes, where: str) -> bytes:
    """A digest in place of the bytes: they are left out, or in a member of their own."""
    return b'{"sha256":"%b","size":%d,"where":"%b"}' % (
        sha256(data).hexdigest().encode(),
        len(data),
        where.encode(),
    )


def _without_data(event: EvidenceEvent, shown: bytes) -> bytes:
    """The envelope, with the content hash."""
    return shown.replace(b'"data":%b,' % event.data, b"", 1)
