"""The Merkle tree of RFC 9162 over the leaves of a checkpoint. Holds one branch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256


class _Node:
    __slots__ = ("digest", "height", "watched")

    def __init__(self, digest: bytes, height: int, watched: list[int]) -> None:
        self.digest = digest
        self.height = height
        self.watched = watched
        """Indexes of the leaves below the node whose paths are collected."""


class MerkleTree:
    """Takes leaves one by one, and collects the paths of the leaves with the indexes `watch`."""

    def __init__(self, watch: Iterable[int] = ()) -> None:
        self.count = 0
        self.paths: dict[int, list[bytes]] = {index: [] for index in watch}
        self.branch: list[_Node] = []

    def add(self, leaf: bytes) -> None:
        watched = [self.count] if self.count in self.paths else []
        self.count += 1
        node = _Node(sha256(b"\0" + leaf).digest(), 0, watched)
        while self.branch and self.branch[-1].height == node.height:
            node = self._join(self.branch.pop(), node)
        self.branch.append(node)

    def root(self) -> bytes:
        """Return the root. Call it after the last leaf; it completes the paths, too."""
        if not self.branch:
            return sha256(b"").digest()
        while len(self.branch) > 1:
            right = self.branch.pop()
            self.branch.append(self._join(self.branch.pop(), right))
        return self.branch[0].digest

    def _join(self, left: _Node, right: _Node) -> _Node:
        for index in left.watched:
            self.paths[index].append(right.digest)
        for index in right.watched:
            self.paths[index].append(left.digest)
        return _Node(_hash_pair(left.digest, right.digest), left.height + 1, left.watched + right.watched)


def root_from_path(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """Compute the root from a leaf, its index among `count` leaves, and its path.

    Returns None if the path has a wrong length.
    """
    digest = sha256(b"\0" + leaf).digest()
    rest = list(path)
    last = count - 1
    while last > 0:
        if index % 2 or index != last:
            if not rest:
                return None
            sibling = rest.pop(0)
            digest = _hash_pair(sibling, digest) if index % 2 else _hash_pair(digest, sibling)
        index, last = index // 2, last // 2
    return None if rest or index else digest


def _hash_pair(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
