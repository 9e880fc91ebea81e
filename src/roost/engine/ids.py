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


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_id() -> str:
    noise = _entropy.take().hex()
    ms = f"{time.time_ns() // 1_000_000:012x}"
    return f"{ms[:8]}-{ms[8:]}-7{noise[:3]}-{_VARIANT[noise[3]]}{noise[4:7]}-{noise[7:19]}"


def now_us() -> int:
    return time.time_ns() // 1000


class _TimestampCache:
    """Formatting a second once is enough."""

    def __init__(self) -> None:
        self.second, self.text = -1, ""

    def timestamp(self, us: int) -> str:
        second, rest = divmod(us, 1_000_000)
        if second != self.second:
            self.text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self.second = second
        return f"{self.text}.{rest // 1000:03d}Z"


timestamp = _TimestampCache().timestamp
"""Microseconds as the specification writes time: UTC, milliseconds, Z."""
