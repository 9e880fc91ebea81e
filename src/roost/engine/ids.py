"""Ids and times. Ids are UUIDv7: unique, and in the order in which tasks are made."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime


class _Entropy:
    """os.urandom in blocks: one system call for many ids."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.block, self.at = b"", 0

    def take(self) -> bytes:
        if self.at >= len(self.block):
            self.block, self.at = os.urandom(4000), 0
        self.at += 10
        return self.block[self.at - 10 : self.at]


_entropy = _Entropy()
os.register_at_fork(after_in_child=_entropy.reset)


def new_id() -> str:
    raw = int.from_bytes(_entropy.take(), "big")
    value = (time.time_ns() // 1_000_000) << 80 | raw
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_us() -> int:
    return time.time_ns() // 1000


class _Clock:
    """Formatting a second once is enough."""

    def __init__(self) -> None:
        self.second, self.text = -1, ""

    def timestamp(self, us: int) -> str:
        second, rest = divmod(us, 1_000_000)
        if second != self.second:
            self.text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self.second = second
        return f"{self.text}.{rest // 1000:03d}Z"


timestamp = _Clock().timestamp
"""Microseconds as the specification writes time: UTC, milliseconds, Z."""
