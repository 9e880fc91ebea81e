"""Verifies that a bundle is what it was when it was signed. It needs the file and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from roost.engine.checkpoints import scope_digest
from roost.engine.store_types import Scope
from roost.evidence import bundle, keys
from roost.evidence.bundle import BundleLimits, BundleMember, Counts, Manifest
from roost.evidence.checkpoint import BadCheckpoint, Statement
from roost.evidence.faults import CHANGED, BundleFault, Faults
from roost.evidence.keys import BadSignature
from roost.evidence.merkle import MerkleTree
from roost.evidence.verify_checkpoints import CheckpointVerifier
from roost.evidence.verify_events import TASK, EventVerifier, is_digest, read_line
from roost.evidence.verify_reader import BundleDamaged, BundleUnreadable, GzipReader, ReadMember, lines, members
from roost.identity.card_verification import Jwk, Unverifiable, read_jwks
from roost.protocol.canonical import NotCanonical, jcs, read_json

MAX_WHOLE = 1 << 20
"""Bytes of a member that is read as a whole."""


class BundleVerdict(Struct):
    valid: bool
    signed_by: str
    """The thumbprint of the signing key; empty if no signature is valid."""
    anchored: bool
    """Whether the key is among those that the verifier was given."""
    checkpoint: int
    """The number of the held checkpoint, if it proves tasks of the bundle; 0 otherwise."""
    proven: int
    """The number of tasks that are in that checkpoint, or in one before it, as they were then."""
    unjudged: str
    """Why the held checkpoint says nothing about the bundle; empty if it does, or if none is held."""
    redacted: list[str]
    counts: Counts
    faults: list[BundleFault]
    more: int
    """The number of further faults, which are not listed."""


def verify(
    path: Path,
    limits: BundleLimits = BundleLimits(),  # noqa: B008  # frozen
    trust: Sequence[Jwk] | None = None,
    held: Statement | None = None,
) -> BundleVerdict:
    """Verify a bundle. Raises BundleUnreadable if the file cannot be judged.

    `trust` are the keys that must have signed it, and `held` is a checkpoint that the caller holds.
    """
    try:
        size = path.stat().st_size
        if size > limits.size:
            raise BundleUnreadable(f"{path} has {size} bytes, more than {limits.size}: raise --max-bytes to accept it")
        with path.open("rb") as file:
            return _BundleVerifier(limits, trust, held).verify(file)
    except OSError as error:
        raise BundleUnreadable(f"cannot read {path}: {error.strerror}") from error


class _BundleVerifier:
    def __init__(self, limits: BundleLimits, trust: Sequence[Jwk] | None, held: Statement | None) -> None:
        self.limits = limits
        self.trust = trust
        self.faults = Faults()
        self.manifest: Manifest | None = None
        self.manifest_bytes = self.signature_bytes = b""
        self.signer = ""
        self.anchored = False
        self.keys: list[Jwk] = []
        self.expected: Iterator[BundleMember] = iter(())
        self.checkpoints = CheckpointVerifier(held)
        self.tasks: IO[bytes] | None = None
        self.events: EventVerifier | None = None
        self.counted = Counts()

    def verify(self, file: IO[bytes]) -> BundleVerdict:
        try:
            for member in members(GzipReader(file, self.limits)):
                self._add(member)
            self._check_end()
        except BundleDamaged as error:
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

    def _add(self, member: ReadMember) -> None:
        if self.manifest is None:
            self._read_manifest(member)
        elif member.name == bundle.SIGNATURE:
            self.signature_bytes = _read_whole(member)
        elif not self.signature_bytes:
            raise BundleDamaged(bundle.SIGNATURE, "the member is missing")
        elif not self.keys and member.name != bundle.KEYS:
            raise BundleDamaged(member.name, f"expected {bundle.KEYS} before this member")
        else:
            self._add_listed(member)

    def _read_manifest(self, member: ReadMember) -> None:
        if member.name != bundle.MANIFEST or member.size > bundle.MAX_MANIFEST:
            raise BundleDamaged(
                member.name, f"expected {bundle.MANIFEST} first, of at most {bundle.MAX_MANIFEST} bytes"
            )
        self.manifest_bytes = b"".join(member.pieces)
        try:
            plain = read_json(self.manifest_bytes)
            if isinstance(plain, dict) and plain.get("format") != bundle.FORMAT:
                raise BundleUnreadable(
                    f"the format is {plain.get('format')!r}, but this release supports only {bundle.FORMAT!r}"
                )
            if jcs(plain) != self.manifest_bytes:
                raise BundleDamaged(bundle.MANIFEST, "not canonical JSON (RFC 8785)")
            self.manifest = msgspec.convert(plain, Manifest)
        except (NotCanonical, msgspec.ValidationError) as error:
            raise BundleDamaged(bundle.MANIFEST, str(error)) from None
        if self.manifest.counts.events > self.limits.events:
            raise BundleUnreadable(
                f"the bundle has {self.manifest.counts.events} events, more than {self.limits.events}:"
                " raise --max-events to accept it"
            )
        self.expected = iter(self.manifest.members)

    def _add_listed(self, member: ReadMember) -> None:
        """Check that a member is the next one in the manifest, and that it has the digest given there."""
        listed = next(self.expected, None)
        if listed is None or listed.name != member.name:
            if member.name == bundle.KEYS:  # without the keys nobody could tell whether the manifest was changed
                self._read(member)
            expected = listed.name if listed else "no further member"
            raise BundleDamaged(member.name, f"the manifest has {expected} at this position")
        digest = sha256()
        size = 0

        def read() -> Iterator[bytes]:
            nonlocal size
            for piece in member.pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        self._read(ReadMember(member.name, member.size, read()))
        if (listed.sha256, listed.size) != (digest.hexdigest(), size):
            self.faults.add(
                member.name,
                "the member does not match the manifest",
                expected=f"{listed.sha256}, {listed.size} bytes",
                found=f"{digest.hexdigest()}, {size} bytes",
            )

    def _read(self, member: ReadMember) -> None:
        name = member.name
        if name == bundle.KEYS:
            self._read_keys(_read_whole(member))
        elif name == bundle.CHECKPOINTS:
            self._read_lines(member, self._check_checkpoint)
        elif name == bundle.PROOFS:
            self._read_lines(member, self._check_proof)
        elif name == bundle.TOMBSTONES:
            self._read_lines(member, self._check_tombstone)
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
            self.signer = keys.check(read_json(self.signature_bytes), self.manifest_bytes, keys.MANIFEST, self.keys)
            if self.manifest is not None and self.signer != self.manifest.signer:
                self.faults.add(
                    bundle.SIGNATURE,
                    "another key signed the manifest",
                    expected=self.manifest.signer,
                    found=self.signer,
                )
        except (Unverifiable, NotCanonical) as error:
            self.faults.add(bundle.KEYS if not self.keys else bundle.SIGNATURE, str(error))
            self.keys = self.keys or [{}]
        except BadSignature as error:
            self.faults.add(bundle.SIGNATURE, str(error))
        if self.trust is not None and self.signer:
            try:
                keys.check(read_json(self.signature_bytes), self.manifest_bytes, keys.MANIFEST, self.trust)
                self.anchored = True
            except BadSignature as error:
                self.faults.add(bundle.SIGNATURE, f"none of the keys that you gave signed the manifest: {error}")

    def _read_lines(self, member: ReadMember, check: Callable[[int, Any, bytes], None]) -> None:
        """Check each line of a member. Every line must be canonical JSON."""
        for number, line in enumerate(lines(member.pieces, member.name), 1):
            if number > self.limits.events:
                raise BundleUnreadable(f"{member.name} has more than {self.limits.events} lines")
            try:
                check(number, read_line(line), line)
            except (ValueError, KeyError, TypeError, BadCheckpoint, BadSignature) as error:
                self.faults.add(member.name, str(error) or "no export writes such a line", line=number)

    def _check_checkpoint(self, number: int, value: Any, line: bytes) -> None:
        self.counted.checkpoints += 1
        self.checkpoints.add(number, line, self.keys)

    def _check_proof(self, number: int, value: Any, line: bytes) -> None:
        self.counted.proofs += 1
        self.checkpoints.add_proof(number, value, line)

    def _check_tombstone(self, number: int, value: Any, line: bytes) -> None:
        self.counted.tombstones += 1
        if not is_digest(value["chain"]) or not isinstance(value["task"], str):
            raise ValueError("not a tombstone")
        _check_scope(value)

    def _read_tasks(self, member: ReadMember) -> None:
        """Check the tasks and keep them in a file. The events are checked against them later, task by task."""
        self.tasks = tempfile.TemporaryFile()  # noqa: SIM115  # closed in verify
        heads = MerkleTree()
        for number, line in enumerate(lines(member.pieces, member.name), 1):
            self.counted.tasks += 1
            heads.add(line)
            self.tasks.write(line + b"\n")
            try:
                value = read_line(line)
                if not isinstance(value, dict) or value.keys() not in (TASK, TASK | {"owner", "tenant"}):
                    raise ValueError("not a task: a field is missing or unknown")
                _check_scope(value)
            except (ValueError, TypeError) as error:
                self.faults.add(member.name, str(error), line=number)
        self.tasks.seek(0)
        assert self.manifest is not None
        if heads.root().hex() != self.manifest.roots.heads:
            self.faults.add(
                member.name, "the Merkle root differs", expected=self.manifest.roots.heads, found=heads.root().hex()
            )

    def _read_events(self, member: ReadMember) -> None:
        assert self.manifest is not None
        if self.tasks is None:
            raise BundleDamaged(member.name, f"expected {bundle.TASKS} before this member")
        tasks = (line.rstrip(b"\n") for line in self.tasks)
        self.events = EventVerifier(self.manifest, self.faults, tasks, self.checkpoints.proven_heads)
        for line in lines(member.pieces, member.name):
            if self.events.line >= self.limits.events:
                raise BundleUnreadable(f"{member.name} has more than {self.limits.events} lines")
            self.events.add(line)
        self.events.end()
        self.counted.events, self.counted.without_event = self.events.line, self.events.without_event

    def _read_raw(self, member: ReadMember) -> None:
        self.counted.raw += 1
        name = member.name.partition("/")[2]
        pending = self.events.pending.pop(name, []) if self.events else []
        digest = sha256()
        for piece in member.pieces:
            for hasher in (digest, *(entry.hash for entry in pending)):
                hasher.update(piece)
        if digest.hexdigest() != name or not pending:
            what = "the content does not match the name, or no entry refers to it"
            self.faults.add(member.name, what, found=digest.hexdigest())
        for entry in pending:
            expected, found = entry.hash.hexdigest(), entry.chain.hex()
            if expected != found:
                self.faults.add(
                    bundle.EVENTS, CHANGED, line=entry.line, **entry.location, expected=expected, found=found
                )

    def _check_end(self) -> None:
        manifest = self.manifest
        if manifest is None:
            raise BundleDamaged(bundle.MANIFEST, "the member is missing")
        missing = next(self.expected, None)
        if missing is not None:
            raise BundleDamaged(missing.name, "the member is missing")
        if self.events is None:
            raise BundleDamaged(bundle.EVENTS, "the member is missing")
        for name, pending in self.events.pending.items():
            for entry in pending:
                self.faults.add(f"raw/{name}", "the member is missing", **entry.location)
        if manifest.counts != self.counted:
            self.faults.add(bundle.MANIFEST, "the counts differ", expected=manifest.counts, found=self.counted)


def _read_whole(member: ReadMember) -> bytes:
    if member.size > MAX_WHOLE:
        raise BundleUnreadable(f"{member.name} has more than {MAX_WHOLE} bytes")
    return b"".join(member.pieces)


def _check_scope(value: dict[str, Any]) -> None:
    if "owner" in value:
        found = scope_digest(Scope(value["tenant"], value["owner"], value["agent"])).hex()
        if found != value["scope"]:
            raise ValueError(
                f"the tenant, owner and agent of task {value['task']} do not match its scope {value['scope']}"
            )
