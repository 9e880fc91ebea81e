"""Checks the checkpoints of a bundle, and the proofs that its tasks are in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engine.ports import Leaf
from roost.evidence.checkpoint import BadCheckpoint, Statement, leaf_line, read_statement, signer_of
from roost.evidence.checkpoint_tree import root_of
from roost.evidence.verify_events import Proven
from roost.evidence.verify_reader import BundleUnreadable
from roost.identity.card_verification import Jwk

MOST_PROOFS = 1000
MAX_PROOF = 16 << 10
"""Bytes of a line: a path has at most as many digests as a number has bits."""


class CheckpointVerifier:
    """`held` is the checkpoint that the verifier has from elsewhere."""

    def __init__(self, held: Statement | None) -> None:
        self.held = held
        self.held_signer = ""
        self.last: tuple[int, str] | None = None
        """Number and digest."""
        self.roots: dict[int, tuple[int, bytes]] = {}
        """How many leaves, and their root."""
        self.leaves: dict[str, Proven] = {}
        self.proven: set[str] = set()
        """Tasks that are in the held checkpoint, or in one before it."""

    def add(self, number: int, line: bytes, keys: Sequence[Jwk]) -> None:
        """The line with this number, from 1 on."""
        said = read_statement(line)
        before, self.last = self.last, (said.number, said.digest())
        signer = signer_of(said, keys)
        if number > 1 and (before is None or before[0] != said.number - 1):
            raise BadCheckpoint(f"checkpoint {said.number} does not follow the one before it")
        if before is not None and before[1] != said.previous:
            raise BadCheckpoint(f"checkpoint {said.number} names {said.previous} before it, found {before[1]}")
        self.roots[said.number] = said.count, bytes.fromhex(said.root)
        if self.held is not None and said.number == self.held.number:
            if said.signed() != self.held.signed():
                raise BadCheckpoint(f"checkpoint {said.number} is not the one that you hold")
            self.held_signer = signer

    def add_proof(self, number: int, value: Any, line: bytes) -> None:
        if number > MOST_PROOFS:
            raise BundleUnreadable(f"there are more than {MOST_PROOFS} proofs")
        if len(line) > MAX_PROOF:
            raise ValueError(f"a proof has at most {MAX_PROOF} bytes")
        task, of = value["task"], value["checkpoint"]
        leaf = Leaf(task, value["seq"], value["sub"], bytes.fromhex(value["chain"]), bytes.fromhex(value["scope"]))
        if of not in self.roots:
            raise ValueError(f"there is no checkpoint {of} in the bundle")
        count, expected = self.roots[of]
        path = [bytes.fromhex(digest) for digest in value["path"]]
        root = root_of(leaf_line(leaf), value["place"], count, path) if value["count"] == count else None
        if root != expected:
            found = "no root" if root is None else root.hex()
            raise ValueError(f"task {task} is not in checkpoint {of}: root {expected.hex()}, not {found}")
        self.leaves[task] = Proven((leaf.seq, leaf.sub), leaf.chain.hex(), leaf.scope.hex())
        if self.held is not None and of <= self.held.number:
            self.proven.add(task)

    def unjudged(self, signer: str, anchored: bool) -> str:
        """Why the held checkpoint says nothing about a bundle of this signer; empty if it does, or there is none."""
        if self.held is None:
            return ""
        name = f"checkpoint {self.held.number}, which you hold,"
        if not self.held_signer:
            return f"{name} is not in it"
        if not self.proven:
            return f"{name} proves none of its tasks"
        if self.held_signer != signer and not anchored:
            return f"{name} is signed by another key than the bundle, and by none that you gave is the bundle"
        return ""
