"""Exports tasks as a bundle. The memory it needs does not depend on their number: members go to files first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from copy import copy
from hashlib import sha256
from typing import IO, NamedTuple

from msgspec import json, to_builtins

from roost._version import VERSION
from roost.engine.checkpoints import scope_digest
from roost.engine.ports import AdminStore
from roost.engine.store_types import NewTask, Tombstone
from roost.evidence import bundle
from roost.evidence.bundle import BundleLimits, Counts, Manifest, Producer, Roots
from roost.evidence.errors import EvidenceError
from roost.evidence.events import EventBuilder, EvidenceEvent, cached_json_string, json_string, rfc3339
from roost.evidence.export_parts import Parts
from roost.evidence.export_proofs import MAX_PROVEN, LatestLeaves, proofs
from roost.evidence.export_selection import Selection, Selector, check_since
from roost.evidence.keys import MANIFEST, signature
from roost.evidence.merkle import MerkleTree
from roost.identity.keys import Keyring
from roost.protocol.canonical import jcs
from roost.protocol.entries import Entry

FIRST_PAGE, PAGE = 64, 128
"""Entries of the first page of a task, and of a page at most."""
PAGE_BYTES = 8 << 20
"""Bytes of a page, if its entries are as long as the longest of the page before."""
YIELD_BYTES = 256 * 1024
"""Bytes of entries between two yields to the event loop. A longer entry is converted in a thread."""
ENTRY_BYTES = YIELD_BYTES // 64
"""Bytes that every entry counts in addition to its own, for the work that does not depend on its length."""
HASH_AT = slice(len(b'{"assaycontenthash":"'), len(b'{"assaycontenthash":"sha256:') + 64)
"""The position of the content hash in an event."""


class ExportTooLarge(Exception):
    """The message says how to export less, or how to raise the limit."""


class TaskChanged(Exception):
    """A task lost entries while it was read."""


class Source(NamedTuple):
    store: AdminStore
    keyring: Keyring
    cards: Mapping[str, bytes] = {}
    """Signed cards by agent. An export from the store itself has none."""


async def export(
    source: Source,
    selection: Selection,
    out: IO[bytes],
    limits: BundleLimits = BundleLimits(),  # noqa: B008
) -> Manifest:
    """Write a bundle to `out`. Raises NothingFound, ExportTooLarge or TaskChanged before anything is written."""
    with Parts() as parts:
        manifest = await _Export(source, selection, limits, parts).collect()
        payload = jcs(to_builtins(manifest))
        signed = jcs(await signature(source.keyring, payload, MANIFEST))
        await asyncio.to_thread(parts.write, out, payload, signed)
    return manifest


class Exporter:
    """Exports bundles from the store of a running host."""

    def __init__(self, store: AdminStore, keyring: Keyring) -> None:
        self.store = store
        self.keyring = keyring

    async def export(self, selection: Selection, out: IO[bytes], cards: Mapping[str, bytes]) -> Manifest:
        """Write a bundle to `out`, with the cards of agents, by their ids."""
        return await export(Source(self.store, self.keyring, cards), selection, out)


class _Export:
    def __init__(self, source: Source, selection: Selection, limits: BundleLimits, parts: Parts) -> None:
        self.store, self.keyring, self.cards = source
        self.selection = selection
        self.limits = limits
        self.parts = parts
        self.counts = Counts()
        self.run_root = sha256()
        self.heads = MerkleTree()
        self.latest = LatestLeaves()

    async def collect(self) -> Manifest:
        agents: set[str] = set()
        await check_since(self.store, self.selection)
        selector = Selector(self.store, self.selection)
        async for new in selector.tasks():
            agents.add(new.scope.agent)
            await self._add_task(new)
        async for tombstone in selector.tombstones():
            agents.add(tombstone.scope.agent)
            self._add_tombstone(tombstone)
        selector.check_agent(self.cards)
        self._add_cards(agents)
        for line in await proofs(self.store, self.latest):
            self.parts[bundle.PROOFS].line(line)
            self.counts.proofs += 1
        await self._add_checkpoints()
        keys = await self.keyring.evidence_keys()
        self.parts.put(bundle.KEYS, jcs({"keys": [json.decode(key.public) for key in keys]}))
        return Manifest(
            format=bundle.FORMAT,
            profile=bundle.PROFILE,
            producer=Producer("roost", VERSION),
            signer=keys[0].kid,
            redacted=bundle.REDACTED if self.selection.redact else [],
            roots=Roots(f"sha256:{self.run_root.hexdigest()}", self.heads.root().hex()),
            counts=self.counts,
            members=[part.member() for part in self.parts.in_order()],
        )

    async def _add_task(self, new: NewTask) -> None:
        before: Entry | None = None
        last: Entry | None = None
        builder, count, unyielded = EventBuilder(new), 0, 0
        savepoint, counts, run_root = self.parts.savepoint(), copy(self.counts), self.run_root.copy()
        async for entries in _pages(self.store, new.id):
            self.counts.events += len(entries)
            if self.counts.events > self.limits.events:
                raise ExportTooLarge(
                    f"there are more than {self.limits.events} entries: select fewer tasks, or raise --max-events here"
                    " and when you verify the bundle"
                )
            for entry in entries:
                if len(entry.data) > YIELD_BYTES:
                    await asyncio.to_thread(self._add_entry, new, builder, entry, count)
                else:
                    self._add_entry(new, builder, entry, count)
                count += 1
                unyielded += len(entry.data) + ENTRY_BYTES
                if unyielded >= YIELD_BYTES:
                    unyielded = 0
                    await asyncio.sleep(0)
                before, last = last, entry
        if last is None or not await self._still_has(new.id, before, last):
            if await self.store.read_tombstone(new.id) is None:
                raise TaskChanged(f"task {new.id} lost entries while it was read, and it has no tombstone")
            self.parts.roll_back(savepoint)
            self.counts, self.run_root = counts, run_root
            return
        self.counts.tasks += 1
        owner = {} if self.selection.redact else {"owner": new.scope.owner, "tenant": new.scope.tenant}
        line = jcs(
            {
                "agent": new.scope.agent,
                "chain": last.chain.hex(),
                "context": new.context_id,
                "created": rfc3339(new.created),
                "entries": count,
                "scope": scope_digest(new.scope).hex(),
                "seq": last.seq,
                "sub": last.sub,
                "task": new.id,
                **owner,
            }
        )
        self.heads.add(line)
        self.parts[bundle.TASKS].line(line)
        if self.counts.tasks <= MAX_PROVEN:
            await self.latest.look_up(self.store, new.id, (last.seq, last.sub))
        else:
            self.latest.clear()

    async def _still_has(self, task_id: str, before: Entry | None, last: Entry) -> bool:
        """Return whether the last entry is still there. Pruning may remove the entries while they are read."""
        seq, sub = (-1, 0) if before is None else (before.seq, before.sub)
        found = await self.store.read_entries(task_id, seq, 1, wire=False, sub=sub)
        return bool(found) and found[0].chain == last.chain

    def _add_entry(self, new: NewTask, builder: EventBuilder, entry: Entry, position: int) -> None:
        event = self._event(builder, entry, position)
        written = b"null" if event is None else event.line()
        if event is not None:
            self.run_root.update(written[HASH_AT] + b"\n")
        raw = _reference(entry.data, "redacted") if self.selection.redact else _raw(entry.data)
        if event is not None and self.selection.redact:
            written = _without_data(event, written)
        line = _line(new, entry, written, raw)
        if len(line) > bundle.MAX_LINE or bundle.too_deep(line):
            written = b"null" if event is None else _without_data(event, event.line())
            line = _line(new, entry, written, raw)
        if len(line) > bundle.MAX_LINE:
            self._add_raw(entry.data)
            line = _line(new, entry, written, _reference(entry.data, "member"))
        self.parts[bundle.EVENTS].line(line)

    def _event(self, builder: EventBuilder, entry: Entry, position: int) -> EvidenceEvent | None:
        try:
            return builder.event(entry, position)
        except EvidenceError:
            self.counts.without_event += 1
            return None

    def _add_raw(self, data: bytes) -> None:
        name = f"raw/{sha256(data).hexdigest()}"
        if name not in self.parts.by_name:
            self.counts.raw += 1
            self.parts.put(name, data)

    def _add_tombstone(self, tombstone: Tombstone) -> None:
        self.counts.tombstones += 1
        scope = tombstone.scope
        owner = {} if self.selection.redact else {"owner": scope.owner, "tenant": scope.tenant}
        self.parts[bundle.TOMBSTONES].line(
            jcs(
                {
                    "agent": scope.agent,
                    "chain": tombstone.chain.hex(),
                    "pruned": rfc3339(tombstone.pruned * 1000),
                    "scope": scope_digest(scope).hex(),
                    "seq": tombstone.seq,
                    "state": tombstone.state.value,
                    "statusTime": rfc3339(tombstone.status_time * 1000),
                    "task": tombstone.task_id,
                    **owner,
                }
            )
        )

    def _add_cards(self, agents: Iterable[str]) -> None:
        for agent in agents:
            if agent in self.cards:
                self.counts.cards += 1
                self.parts.put(bundle.card_name(agent), self.cards[agent])

    async def _add_checkpoints(self) -> None:
        """Add the checkpoints from the first that a proof or the selection names. Without any, add the newest only."""
        wanted = [number for number, _ in self.latest.leaves.values()]
        if self.selection.since_checkpoint is not None:
            wanted.append(self.selection.since_checkpoint)
        after = min(wanted, default=2**62) - 1
        newest = b""
        number = 0
        while page := await self.store.read_checkpoints(number, 1000):
            for checkpoint in page:
                newest = checkpoint.statement
                if checkpoint.number > after:
                    self.counts.checkpoints += 1
                    self.parts[bundle.CHECKPOINTS].line(newest)
            number = page[-1].number
        if newest and not self.counts.checkpoints:
            self.counts.checkpoints = 1
            self.parts[bundle.CHECKPOINTS].line(newest)


async def _pages(store: AdminStore, task_id: str) -> AsyncIterator[list[Entry]]:
    """Yield the entries of a task in pages. Pages of long entries have fewer of them."""
    seq, sub, limit = -1, 0, FIRST_PAGE
    while entries := await store.read_entries(task_id, seq, limit, wire=False, sub=sub):
        yield entries
        if len(entries) < limit:
            return
        seq, sub = entries[-1].seq, entries[-1].sub
        longest = max(len(entry.data) for entry in entries)
        limit = max(1, min(PAGE, 2 * limit, PAGE_BYTES // max(1, longest)))


def _line(new: NewTask, entry: Entry, event: bytes, raw: bytes) -> bytes:
    """Return a line of events.ndjson. It is canonical: the names are sorted."""
    return b'{"chain":"%b","event":%b,"kind":%b,"ordinal":%d,"raw":%b,"seq":%d,"sub":%d,"task":%b,"time":%d}' % (
        entry.chain.hex().encode(),
        event,
        cached_json_string(entry.kind),
        entry.ordinal,
        raw,
        entry.seq,
        entry.sub,
        cached_json_string(new.id),
        entry.time,
    )


def _raw(data: bytes) -> bytes:
    """Return the bytes as a JSON string, or as an object if they are not UTF-8."""
    try:
        return json_string(data.decode())
    except UnicodeDecodeError:
        return b'{"hex":"%b"}' % data.hex().encode()


def _reference(data: bytes, where: str) -> bytes:
    """Return a digest in place of the bytes, which are omitted or have a member of their own."""
    return b'{"sha256":"%b","size":%d,"where":"%b"}' % (
        sha256(data).hexdigest().encode(),
        len(data),
        where.encode(),
    )


def _without_data(event: EvidenceEvent, written: bytes) -> bytes:
    """Return the envelope of an event, which includes the content hash."""
    return written.replace(b'"data":%b,' % event.data, b"", 1)
