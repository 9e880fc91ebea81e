"""Verifies the checkpoints of a bundle, and the proofs that its tasks are in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engine.checkpoints import Leaf
from roost.evidence.checkpoint import BadCheckpoint, Statement, leaf_line, read_statement, signer_of
from roost.evidence.merkle import root_from_path
from roost.evidence.verify_events import ProvenHead
from roost.evidence.verify_reader import BundleUnreadable
from roost.identity.card_verification import Jwk

MAX_PROOFS = 1000
MAX_PROOF = 16 << 10
"""Bytes of a line. A path has at most as many digests as a number has bits."""


class CheckpointVerifier:
    """`held` is the checkpoint that the verifier has from elsewhere."""

    def __init__(self, held: Statement | None) -> None:
        self.held = held
        self.held_signer = ""
        self.last: tuple[int, str] | None = None
        """The number and the digest of the last checkpoint."""
        self.roots: dict[int, tuple[int, bytes]] = {}
        """The number of leaves and their root, by checkpoint."""
        self.proven_heads: dict[str, ProvenHead] = {}
        """The heads that proofs show, by task id."""
        self.proven: set[str] = set()
        """The tasks that are in the held checkpoint, or in one before it."""

    def add(self, line_number: int, line: bytes, keys: Sequence[Jwk]) -> None:
        """Verify a line of checkpoints.ndjson. Lines are numbered from 1."""
        statement = read_statement(line)
        before, self.last = self.last, (statement.number, statement.digest())
        signer = signer_of(statement, keys)
        if line_number > 1 and (before is None or before[0] != statement.number - 1):
            raise BadCheckpoint(f"checkpoint {statement.number} does not follow the one before it")
        if before is not None and before[1] != statement.previous:
            raise BadCheckpoint(
                f"checkpoint {statement.number} names the predecessor {statement.previous}, found {before[1]}"
            )
        self.roots[statement.number] = statement.count, bytes.fromhex(statement.root)
        if self.held is not None and statement.number == self.held.number:
            if statement.signed() != self.held.signed():
                raise BadCheckpoint(f"checkpoint {statement.number} is not the one that you hold")
            self.held_signer = signer

    def add_proof(self, line_number: int, value: Any, line: bytes) -> None:
        """Verify a line of proofs.ndjson. Lines are numbered from 1."""
        if line_number > MAX_PROOFS:
            raise BundleUnreadable(f"the bundle has more than {MAX_PROOFS} proofs")
        if len(line) > MAX_PROOF:
            raise ValueError(f"a proof has at most {MAX_PROOF} bytes")
        task, number = value["task"], value["checkpoint"]
        leaf = Leaf(task, value["seq"], value["sub"], bytes.fromhex(value["chain"]), bytes.fromhex(value["scope"]))
        if number not in self.roots:
            raise ValueError(f"the bundle has no checkpoint {number}")
        count, expected = self.roots[number]
        path = [bytes.fromhex(digest) for digest in value["path"]]
        root = root_from_path(leaf_line(leaf), value["place"], count, path) if value["count"] == count else None
        if root != expected:
            found = "no root" if root is None else root.hex()
            raise ValueError(
                f"task {task} is not in checkpoint {number}: expected root {expected.hex()}, found {found}"
            )
        self.proven_heads[task] = ProvenHead((leaf.seq, leaf.sub), leaf.chain.hex(), leaf.scope.hex())
        if self.held is not None and number <= self.held.number:
            self.proven.add(task)

    def unjudged(self, signer: str, anchored: bool) -> str:
        """Return why the held checkpoint says nothing about the bundle. Empty if it does, or if none is held."""
        if self.held is None:
            return ""
        name = f"checkpoint {self.held.number}, which you hold,"
        if not self.held_signer:
            return f"{name} is not in the bundle"
        if not self.proven:
            return f"{name} proves none of the bundle's tasks"
        if self.held_signer != signer and not anchored:
            return f"{name} and the bundle are signed by different keys, and you gave no key that signed the bundle"
        return ""
