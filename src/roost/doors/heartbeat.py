"""The heartbeat of streams: one that has sent nothing for a while sends a sign of life, so that no proxy cuts it."""

from __future__ import annotations

import asyncio
import time

from roost.engine.follower import Follower

IDLE_S = 15.0
"""Seconds of silence after which a stream sends a sign of life."""


class Heartbeat:
    """One timer for all streams: it wakes those that have sent nothing for IDLE_S."""

    def __init__(self) -> None:
        self.streams: dict[Follower, float] = {}
        """The monotonic time at which each stream last sent something."""
        self.timer: asyncio.TimerHandle | None = None

    def sent(self, follower: Follower) -> None:
        self.streams[follower] = time.monotonic()
        if self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(IDLE_S / 3, self._beat)

    def forget(self, follower: Follower) -> None:
        self.streams.pop(follower, None)

    def _beat(self) -> None:
        silent_since = time.monotonic() - IDLE_S
        for follower, last in self.streams.items():
            if last <= silent_since:
                follower.nudge()
        self.timer = asyncio.get_running_loop().call_later(IDLE_S / 3, self._beat) if self.streams else None
