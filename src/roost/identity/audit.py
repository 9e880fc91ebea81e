"""The audit log: who made, revoked, rotated or was refused what. Nothing secret is ever in it."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from roost.identity.limiter import Windows
from roost.identity.ports import Audited, Identities, NumberedAudit, now_ms
from roost.identity.principal import Principal

KEPT = 100_000
"""Lines in the store; the oldest go."""
WAITING = 1000
"""Refusals that wait to be written; more of them are only counted."""
PER_MINUTE = 30
"""Refusals of one principal, or of one address, that are told one by one: nobody can fill the log with them."""
SUM_S = 60.0
MAX_TEXT = 256
ANONYMOUS = "anonymous"


class AuditLog:
    def __init__(self, store: Identities) -> None:
        self.store = store
        self.waiting: deque[Audited] = deque()
        self.dropped = 0
        self.summed = float("-inf")
        """When those were last told in sum."""
        self.told: Windows[str] = Windows()
        """Refusals of each principal, or address, that are on record."""
        self.turn = asyncio.Lock()

    async def did(self, actor: str, action: str, target: str, outcome: str = "done", address: str = "") -> None:
        """On record when this returns."""
        await self.store.write_audit([_line(actor, action, target, outcome, address)], KEPT)

    def refused(self, caller: Principal | None, target: str, why: str, address: str) -> None:
        """On record within a second: whoever is refused must not make us write as fast as they can ask."""
        name = ANONYMOUS if caller is None else caller.name
        who = address if caller is None else name
        if len(self.waiting) >= WAITING or self.told.wait(who, PER_MINUTE):
            self.dropped += 1
        else:
            self.told.add(who)
            self.waiting.append(_line(name, "refused", target, why, address))

    async def read(self, before: int | None, limit: int) -> list[NumberedAudit]:
        """The newest first, what waits included."""
        await self.flush()
        return await self.store.read_audit(before, limit)

    async def flush(self) -> None:
        async with self.turn:  # or else two would write the same lines, and forget others
            lines, dropped = list(self.waiting), self.dropped
            if time.monotonic() - self.summed < SUM_S:
                dropped = 0
            if dropped:
                self.summed = time.monotonic()
                lines.append(_line("roost", "refused", "", f"{dropped} more, that came too fast to be told", ""))
            if lines:
                await self.store.write_audit(lines, KEPT)
                self.dropped -= dropped
                for _ in range(len(lines) - bool(dropped)):
                    self.waiting.popleft()


def _line(actor: str, action: str, target: str, outcome: str, address: str) -> Audited:
    texts = (_plain(text) for text in (actor, action, target, outcome, address))
    return Audited(now_ms(), *texts)


def _plain(text: str) -> str:
    """What every store can keep and every terminal show."""
    cut = text[:MAX_TEXT].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in cut)
