"""The audit log: who created, revoked or rotated what, and who was refused. It never contains a secret."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from roost.identity.limiter import Windows
from roost.identity.ports import Audited, Identities, NumberedAudit, now_ms
from roost.identity.principal import Principal

KEPT = 100_000
"""Lines that stay in the store; older ones are deleted."""
WAITING = 1000
"""Refusals that may wait to be written; further ones are only counted."""
PER_MINUTE = 30
"""Refusals of one principal, or of one address, that get a line of their own, so that nobody can fill the log."""
SUMMARY_S = 60.0
"""Seconds from one line that counts the other refusals to the next."""
MAX_TEXT = 256
ANONYMOUS = "anonymous"


class AuditLog:
    def __init__(self, store: Identities) -> None:
        self.store = store
        self.waiting: deque[Audited] = deque()
        self.dropped = 0
        """Refusals without a line of their own since the last summary."""
        self.last_summary = float("-inf")
        self.recorded: Windows[str] = Windows()
        """Refusals with a line of their own, by principal or address."""
        self.flushing = asyncio.Lock()

    async def record(self, actor: str, action: str, target: str, outcome: str = "done", address: str = "") -> None:
        """Write a line and return when it is stored."""
        await self.store.write_audit([_line(actor, action, target, outcome, address)], KEPT)

    def record_refusal(self, caller: Principal | None, target: str, reason: str, address: str) -> None:
        """Write a line within a second, so that callers who are refused cannot make the store write at their rate."""
        name = ANONYMOUS if caller is None else caller.name
        who = address if caller is None else name
        if len(self.waiting) >= WAITING or self.recorded.wait(who, PER_MINUTE):
            self.dropped += 1
        else:
            self.recorded.add(who)
            self.waiting.append(_line(name, "refused", target, reason, address))

    async def read(self, before: int | None, limit: int) -> list[NumberedAudit]:
        """Return lines, the newest first, including those that were waiting."""
        await self.flush()
        return await self.store.read_audit(before, limit)

    async def flush(self) -> None:
        async with self.flushing:  # two at once would write some lines twice and lose others
            lines, dropped = list(self.waiting), self.dropped
            if time.monotonic() - self.last_summary < SUMMARY_S:
                dropped = 0
            if dropped:
                self.last_summary = time.monotonic()
                lines.append(_line("roost", "refused", "", f"{dropped} more that came too fast to be recorded", ""))
            if lines:
                await self.store.write_audit(lines, KEPT)
                self.dropped -= dropped
                for _ in range(len(lines) - bool(dropped)):
                    self.waiting.popleft()


def _line(actor: str, action: str, target: str, outcome: str, address: str) -> Audited:
    texts = (_plain(text) for text in (actor, action, target, outcome, address))
    return Audited(now_ms(), *texts)


def _plain(text: str) -> str:
    """Return text that every store can keep and every terminal can show."""
    cut = text[:MAX_TEXT].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in cut)
