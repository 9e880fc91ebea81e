"""The Merkle tree of RFC 9162 over the leaves of a checkpoint, in the room of one branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256


class _Node:
    __slots__ = ("digest", "height", "watched")

    def __init__(self, digest: bytes, height: int, watched: list[int]) -> None:
        self.digest = digest
        self.height = height
        self.watched = watched
        """Places of leaves below it whose paths are asked for."""


class Tree:
    """Leaves are added one by one; `watch` are the places whose paths are wanted."""

    def __init__(self, watch: Iterable[int] = ()) -> None:
        self.count = 0
        self.paths: dict[int, list[bytes]] = {place: [] for place in watch}
        self.branch: list[_Node] = []

    def add(self, leaf: bytes) -> None:
        watched = [self.count] if self.count in self.paths else []
        self.count += 1
        node = _Node(sha256(b"\0" + leaf).digest(), 0, watched)
        while self.branch and self.branch[-1].height == node.height:
            node = self._join(self.branch.pop(), node)
        self.branch.append(node)

    def root(self) -> bytes:
        """After the last leaf; then the paths are whole too."""
        if not self.branch:
            return sha256(b"").digest()
        while len(self.branch) > 1:
            right = self.branch.pop()
            self.branch.append(self._join(self.branch.pop(), right))
        return self.branch[0].digest

    def _join(self, left: _Node, right: _Node) -> _Node:
        for place in left.watched:
            self.paths[place].append(right.digest)
        for place in right.watched:
            self.paths[place].append(left.digest)
        return _Node(_pair(left.digest, right.digest), left.height + 1, left.watched + right.watched)


def root_of(leaf: bytes, place: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf at a place of so many has with this path; None if the path has a wrong length."""
    digest = sha256(b"\0" + leaf).digest()
    rest = list(path)
    last = count - 1
    while last > 0:
        if place % 2 or place != last:
            if not rest:
                return None
            sibling = rest.pop(0)
            digest = _pair(sibling, digest) if place % 2 else _pair(digest, sibling)
        place, last = place // 2, last // 2
    return None if rest or place else digest


def _pair(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
