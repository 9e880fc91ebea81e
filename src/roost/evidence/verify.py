"""Whether a bundle is what it was when it was signed. Needs the file and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from roost.engine.checkpoint_leaves import scope_digest
from roost.engine.ports import Scope
from roost.evidence import bundle, keys
from roost.evidence.bundle import BundleLimits, BundleMember, Counts, Manifest
from roost.evidence.checkpoint import BadCheckpoint, Statement
from roost.evidence.checkpoint_tree import Tree
from roost.evidence.keys import BadSignature
from roost.evidence.verify_checkpoints import CheckpointVerifier
from roost.evidence.verify_events import CHANGED, TASK, EventVerifier, is_digest, read_line
from roost.evidence.verify_faults import BundleFault, Faults
from roost.evidence.verify_reader import Broken, BundleUnreadable, ReadMember, Unpacked, lines, members
from roost.identity.card_verification import Jwk, Unverifiable, read_jwks
from roost.protocol.canonical import NotCanonical, jcs, read_json

SMALL = 1 << 20
"""Bytes of a member that is read as a whole."""


class BundleVerdict(Struct):
    valid: bool
    signed_by: str
    """Thumbprint; empty if nobody's signature fits."""
    anchored: bool
    """The key is among those that the verifier was given."""
    checkpoint: int
    """The number of the checkpoint that the verifier holds and that proves tasks of the bundle; 0 for none."""
    proven: int
    """Tasks that are in that checkpoint, or in one before it, as they were then."""
    unjudged: str
    """Why the checkpoint that the verifier holds says nothing about the bundle; empty if it does, or there is none."""
    redacted: list[str]
    counts: Counts
    faults: list[BundleFault]
    more: int
    """Faults that are not told."""


def verify(
    path: Path,
    limits: BundleLimits = BundleLimits(),  # noqa: B008  # frozen
    trust: Sequence[Jwk] | None = None,
    held: Statement | None = None,
) -> BundleVerdict:
    """Unjudged if there is nothing to judge, or too much of it."""
    try:
        size = path.stat().st_size
        if size > limits.size:
            raise BundleUnreadable(
                f"{path} has {size} bytes, more than {limits.size}: raise --max-bytes if that is meant"
            )
        with path.open("rb") as file:
            return _Verifier(limits, trust, held).judge(file)
    except OSError as error:
        raise BundleUnreadable(f"cannot read {path}: {error.strerror}") from error


class _Verifier:
    def __init__(self, limits: BundleLimits, trust: Sequence[Jwk] | None, held: Statement | None) -> None:
        self.limits = limits
        self.trust = trust
        self.faults = Faults()
        self.manifest: Manifest | None = None
        self.sealed = self.signed = b""
        self.signer = ""
        self.anchored = False
        self.keys: list[Jwk] = []
        self.expected: Iterator[BundleMember] = iter(())
        self.checkpoints = CheckpointVerifier(held)
        self.tasks: IO[bytes] | None = None
        self.events: EventVerifier | None = None
        self.counted = Counts()

    def judge(self, file: IO[bytes]) -> BundleVerdict:
        try:
            for member in members(Unpacked(file, self.limits)):
                self._member(member)
            self._end()
        except Broken as error:
            self.faults.add(error.at, str(error))
        finally:
            if self.tasks is not None:
                self.tasks.close()
        manifest = self.manifest
        held, proven = self.checkpoints.held, self.checkpoints.proven
        unjudged = self.checkpoints.unjudged(self.signer, self.anchored)
        return BundleVerdict(
            valid=not self.faults.count,
            signed_by=self.signer,
            anchored=self.anchored,
            checkpoint=0 if held is None or unjudged else held.number,
            proven=0 if unjudged else len(proven),
            unjudged=unjudged,
            redacted=manifest.redacted if manifest else [],
            counts=self.counted,
            faults=self.faults.found,
            more=self.faults.count - len(self.faults.found),
        )

    def _member(self, member: ReadMember) -> None:
        if self.manifest is None:
            self._read_manifest(member)
        elif member.name == bundle.SIGNATURE:
            self.signed = _whole(member)
        elif not self.signed:
            raise Broken(bundle.SIGNATURE, "there is none")
        elif not self.keys and member.name != bundle.KEYS:
            raise Broken(member.name, f"expected {bundle.KEYS} before it")
        else:
            self._listed(member)

    def _read_manifest(self, member: ReadMember) -> None:
        if member.name != bundle.MANIFEST or member.size > bundle.MAX_MANIFEST:
            raise Broken(member.name, f"expected {bundle.MANIFEST} first, of at most {bundle.MAX_MANIFEST} bytes")
        self.sealed = b"".join(member.pieces)
        try:
            plain = read_json(self.sealed)
            if isinstance(plain, dict) and plain.get("format") != bundle.FORMAT:
                raise BundleUnreadable(
                    f"its format is {plain.get('format')!r}, and this release knows {bundle.FORMAT!r}"
                )
            if jcs(plain) != self.sealed:
                raise Broken(bundle.MANIFEST, "it is not canonical JSON (RFC 8785)")
            self.manifest = msgspec.convert(plain, Manifest)
        except (NotCanonical, msgspec.ValidationError) as error:
            raise Broken(bundle.MANIFEST, str(error)) from None
        if self.manifest.counts.events > self.limits.events:
            raise BundleUnreadable(
                f"it has {self.manifest.counts.events} events, more than {self.limits.events}:"
                " raise --max-events if that is meant"
            )
        self.expected = iter(self.manifest.members)

    def _listed(self, member: ReadMember) -> None:
        """What the manifest says comes next, and the digest that it says."""
        told = next(self.expected, None)
        if told is None or told.name != member.name:
            if member.name == bundle.KEYS:  # or else nobody would know whether it is the manifest that was changed
                self._read(member)
            raise Broken(member.name, f"the manifest has {told.name if told else 'nothing more'} in its place")
        digest = sha256()
        size = 0

        def read() -> Iterator[bytes]:
            nonlocal size
            for piece in member.pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        self._read(ReadMember(member.name, member.size, read()))
        if (told.sha256, told.size) != (digest.hexdigest(), size):
            self.faults.add(
                member.name,
                "it is not what the manifest says",
                expected=f"{told.sha256}, {told.size} bytes",
                found=f"{digest.hexdigest()}, {size} bytes",
            )

    def _read(self, member: ReadMember) -> None:
        name = member.name
        if name == bundle.KEYS:
            self._read_keys(_whole(member))
        elif name == bundle.CHECKPOINTS:
            self._each(member, self._checkpoint)
        elif name == bundle.PROOFS:
            self._each(member, self._proof)
        elif name == bundle.TOMBSTONES:
            self._each(member, self._tombstone)
        elif name == bundle.TASKS:
            self._read_tasks(member)
        elif name == bundle.EVENTS:
            self._read_events(member)
        elif name.startswith("raw/"):
            self._read_raw(member)
        else:
            self.counted.cards += 1
            for _ in member.pieces:
                pass

    def _read_keys(self, data: bytes) -> None:
        try:
            self.keys = read_jwks(data)
            self.signer = keys.check(read_json(self.signed), self.sealed, keys.MANIFEST, self.keys)
            if self.manifest is not None and self.signer != self.manifest.signer:
                self.faults.add(
                    bundle.SIGNATURE, "another key signed it", expected=self.manifest.signer, found=self.signer
                )
        except (Unverifiable, NotCanonical) as error:
            self.faults.add(bundle.KEYS if not self.keys else bundle.SIGNATURE, str(error))
            self.keys = self.keys or [{}]
        except BadSignature as error:
            self.faults.add(bundle.SIGNATURE, str(error))
        if self.trust is not None and self.signer:
            try:
                keys.check(read_json(self.signed), self.sealed, keys.MANIFEST, self.trust)
                self.anchored = True
            except BadSignature as error:
                self.faults.add(bundle.SIGNATURE, f"no key that you gave has signed it: {error}")

    def _each(self, member: ReadMember, check: Any) -> None:
        """Check each line, which has to be canonical."""
        for number, line in enumerate(lines(member.pieces, member.name), 1):
            if number > self.limits.events:
                raise BundleUnreadable(f"{member.name} has more than {self.limits.events} lines")
            try:
                check(number, read_line(line), line)
            except (ValueError, KeyError, TypeError, BadCheckpoint, BadSignature) as error:
                self.faults.add(member.name, str(error) or "it is not as an export writes it", line=number)

    def _checkpoint(self, number: int, value: Any, line: bytes) -> None:
        self.counted.checkpoints += 1
        self.checkpoints.add(number, line, self.keys)

    def _proof(self, number: int, value: Any, line: bytes) -> None:
        self.counted.proofs += 1
        self.checkpoints.add_proof(number, value, line)

    def _tombstone(self, number: int, value: Any, line: bytes) -> None:
        self.counted.tombstones += 1
        if not is_digest(value["chain"]) or not isinstance(value["task"], str):
            raise ValueError("it is not a tombstone")
        _check_scope(value)

    def _read_tasks(self, member: ReadMember) -> None:
        """Kept in a file: the events are checked against them, task by task."""
        self.tasks = tempfile.TemporaryFile()  # noqa: SIM115  # closed in judge
        heads = Tree()
        for number, line in enumerate(lines(member.pieces, member.name), 1):
            self.counted.tasks += 1
            heads.add(line)
            self.tasks.write(line + b"\n")
            try:
                value = read_line(line)
                if not isinstance(value, dict) or value.keys() not in (TASK, TASK | {"owner", "tenant"}):
                    raise ValueError("it is not a task: a field is missing, or too many")
                _check_scope(value)
            except (ValueError, TypeError) as error:
                self.faults.add(member.name, str(error), line=number)
        self.tasks.seek(0)
        assert self.manifest is not None
        if heads.root().hex() != self.manifest.roots.heads:
            self.faults.add(
                member.name, "the root differs", expected=self.manifest.roots.heads, found=heads.root().hex()
            )

    def _read_events(self, member: ReadMember) -> None:
        assert self.manifest is not None
        if self.tasks is None:
            raise Broken(member.name, f"expected {bundle.TASKS} before it")
        told = (line.rstrip(b"\n") for line in self.tasks)
        self.events = EventVerifier(self.manifest, self.faults, told, self.checkpoints.leaves)
        for line in lines(member.pieces, member.name):
            if self.events.line >= self.limits.events:
                raise BundleUnreadable(f"{member.name} has more than {self.limits.events} lines")
            self.events.add(line)
        self.events.end()
        self.counted.events, self.counted.untold = self.events.line, self.events.untold

    def _read_raw(self, member: ReadMember) -> None:
        self.counted.raw += 1
        name = member.name.partition("/")[2]
        waiting = self.events.later.pop(name, []) if self.events else []
        digest = sha256()
        for piece in member.pieces:
            for each in (digest, *(one.hash for one in waiting)):
                each.update(piece)
        if digest.hexdigest() != name or not waiting:
            what = "it is not what its name says, or nothing refers to it"
            self.faults.add(member.name, what, found=digest.hexdigest())
        for one in waiting:
            made, found = one.hash.hexdigest(), one.chain.hex()
            if made != found:
                self.faults.add(bundle.EVENTS, CHANGED, line=one.line, **one.place, expected=made, found=found)

    def _end(self) -> None:
        manifest = self.manifest
        if manifest is None:
            raise Broken(bundle.MANIFEST, "there is none")
        left = next(self.expected, None)
        if left is not None:
            raise Broken(left.name, "it is missing")
        if self.events is None:
            raise Broken(bundle.EVENTS, "it is missing")
        for name, some in self.events.later.items():
            for one in some:
                self.faults.add(f"raw/{name}", "it is missing", **one.place)
        if manifest.counts != self.counted:
            self.faults.add(bundle.MANIFEST, "its counts differ", expected=manifest.counts, found=self.counted)


def _whole(member: ReadMember) -> bytes:
    if member.size > SMALL:
        raise BundleUnreadable(f"{member.name} has more than {SMALL} bytes")
    return b"".join(member.pieces)


def _check_scope(value: dict[str, Any]) -> None:
    if "owner" in value:
        made = scope_digest(Scope(value["tenant"], value["owner"], value["agent"])).hex()
        if made != value["scope"]:
            raise ValueError(f"task {value['task']} is not of this tenant, owner and agent: expected {value['scope']}")
