"""Delivers to one webhook: sends what is pending, one entry at a time, and records each outcome."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import NamedTuple

from roost.engine import push_payloads
from roost.engine.extension import Extensions
from roost.engine.ids import now_us
from roost.engine.ports import Store
from roost.engine.push_cursors import Hook, PushCursors
from roost.engine.push_payloads import PushPayload
from roost.engine.push_slots import Slots
from roost.engine.stats import Stats
from roost.engine.store_types import DeadLetter
from roost.engine.webhook import Sender, Undeliverable, Webhook, opened
from roost.identity.seal import Seal, WrongKey
from roost.protocol.states import SETTLED

log = logging.getLogger("roost.push")

CALLS = 200
"""Calls in progress at the same time."""
PAGE = 16
"""Entries that are sent to one webhook before others have a turn."""
BURIED = 3
"""Dead letters in a row after which a webhook is paused."""
KEEP_S = 2.0
"""Seconds. Before a longer wait the webhook is released, for whichever host is there when it is due."""
RETRY_MAX_S = 3600.0
CROWDED_S = 15.0
WRONG_KEY_S = 30.0
MAX_ERROR = 300
GONE = 410


class PushRules(NamedTuple):
    attempts: int = 7
    retry_s: float = 1.0
    """Seconds before the second attempt, doubled for each further one."""
    per_host: int = 8
    coalesce_s: float = 0.0
    secret: str = ""
    """Signs the calls to webhooks that have no secret of their own."""


class PushSettings(NamedTuple):
    """Everything that calling webhooks needs."""

    sender: Sender
    seal: Seal
    rules: PushRules = PushRules()


class Delivery:
    """`drop` is called with hooks that can be forgotten."""

    def __init__(
        self,
        store: Store,
        settings: PushSettings,
        extensions: Extensions,
        stats: Stats,
        moves: PushCursors,
        drop: Callable[[Hook], None],
    ) -> None:
        self.store = store
        self.sender, self.seal, self.rules = settings
        self.extensions = extensions
        self.stats = stats
        self.moves = moves
        self.drop = drop
        self.slots = Slots(CALLS, self.rules.per_host)
        self.closing = False

    async def turn(self, hook: Hook) -> float | None:
        """Send a page of what is pending. Return the seconds until the next turn, or None to wait for the task."""
        hook.again = False
        try:
            webhook = opened(self.seal, hook.config)
        except WrongKey as error:
            log.error("%s cannot be called: %s", hook, error)
            hook.attempts, hook.error = max(1, hook.attempts), str(error)
            await self._release(hook, WRONG_KEY_S)
            return None
        if self.slots.crowded(webhook.host):
            await self._release(hook, jittered(CROWDED_S))
            return None
        if self.rules.coalesce_s:
            await asyncio.sleep(self.rules.coalesce_s)
            hook.again = False
        if hook.cursor == 0 and hook.settled is None and not await self._is_task(hook):
            return None
        async with self.slots.one(webhook.host):
            if self.store.shared and not await self._is_ours(hook):
                self.drop(hook)
                return None
            pending = await self._pending(hook)
            for payload in pending:
                if hook.lost or self.closing:
                    return None
                trouble = await self._call(webhook, payload)
                if hook.lost:
                    return None
                if trouble is not None:
                    break
                self._delivered(hook, payload)
            else:
                trouble = None
        if trouble is not None:
            return await self._failed(hook, webhook, payload, trouble)
        if hook.again or len(pending) == PAGE or (pending and not pending[-1].settled):
            return 0.0
        await self._rest(hook)
        return None

    async def _is_task(self, hook: Hook) -> bool:
        """Return False for a direct exchange. While it may become a task it is waited for; then it is forgotten."""
        stored = await self.store.read_task(hook.config.task_id)
        if stored is None:
            self.drop(hook)
            return False
        if not stored.head.hidden:
            hook.settled = False  # the first entry is still to be sent
            return True
        if stored.head.state in SETTLED:
            await self.store.delete_push(hook.config.task_id, hook.config.id)
            self.drop(hook)
        return False

    async def _is_ours(self, hook: Hook) -> bool:
        """Check that no other host has deleted or replaced the webhook, because then it must not be called any more."""
        return any(
            (push.config.id, push.config.sealed, push.holder)
            == (hook.config.id, hook.config.sealed, self.moves.worker.name)
            for push in await self.store.read_pushes(hook.config.task_id)
        )

    async def _pending(self, hook: Hook) -> list[PushPayload]:
        if self.rules.coalesce_s:
            return await push_payloads.task_after(self.store, hook.config.task_id, hook.cursor)
        return await push_payloads.entries_after(self.store, hook.config.task_id, hook.cursor, PAGE)

    async def _call(self, webhook: Webhook, payload: PushPayload) -> Undeliverable | None:
        view = self.extensions.view(webhook.extensions)
        body = payload.body if view is None else view.event(payload.body)
        headers = webhook.headers(payload.seq, body, now_us() // 1_000_000, self.rules.secret)
        try:
            status = await self.sender.post(webhook.config.url, headers, body)
        except Undeliverable as error:
            return error
        return None if 200 <= status < 300 else Answered(status)

    def _delivered(self, hook: Hook, payload: PushPayload) -> None:
        self.stats.pushes["delivered"] += 1
        hook.cursor, hook.settled = payload.seq, payload.settled
        hook.attempts = hook.buried = 0
        hook.error = ""
        self.moves.note(hook, hook.move(delay_s=0.0, keep=True))

    async def _failed(self, hook: Hook, webhook: Webhook, payload: PushPayload, trouble: Undeliverable) -> float | None:
        """Try again later, or make the entry a dead letter. A webhook that is gone or accepts nothing is paused."""
        self.stats.pushes["refused" if trouble.final else "failed"] += 1
        hook.attempts += 1
        hook.error = str(trouble)[:MAX_ERROR]
        if isinstance(trouble, Answered) and trouble.status == GONE:
            await self._pause(hook, webhook, None)
            return None
        if trouble.final or hook.attempts >= self.rules.attempts:
            return await self._bury(hook, webhook, payload)
        delay = jittered(min(self.rules.retry_s * 2 ** (hook.attempts - 1), RETRY_MAX_S))
        log.info(
            "%s at %s: %s; attempt %d of %d, the next in %.1f s",
            *(hook, webhook.host, hook.error, hook.attempts, self.rules.attempts, delay),
        )
        if delay > KEEP_S:
            await self._release(hook, delay)
            return None
        return delay if await self.moves.save(hook, hook.move(delay_s=delay, keep=True)) else None

    async def _bury(self, hook: Hook, webhook: Webhook, payload: PushPayload) -> float | None:
        config, attempts = hook.config, hook.attempts
        dead = DeadLetter(config.task_id, config.id, payload.seq, attempts, hook.error, now_us() // 1000)
        hook.cursor, hook.settled = payload.seq, payload.settled
        hook.attempts = 0
        hook.buried += 1
        self.stats.pushes["dead"] += 1
        log.warning(
            "%s at %s did not take event %d in %d attempts: %s", hook, webhook.host, payload.seq, attempts, hook.error
        )
        if hook.buried >= BURIED:
            await self._pause(hook, webhook, dead)
            return None
        return 0.0 if await self.moves.save(hook, hook.move(delay_s=0.0, keep=True, dead=dead)) else None

    async def _pause(self, hook: Hook, webhook: Webhook, dead: DeadLetter | None) -> None:
        log.warning("%s at %s is paused until `roost push retry`: %s", hook, webhook.host, hook.error)
        await self.moves.save(hook, hook.move(delay_s=None, keep=False, paused=True, dead=dead))
        self.drop(hook)

    async def _release(self, hook: Hook, delay_s: float) -> None:
        """Leave the webhook to whichever host is there when it is due."""
        await self.moves.save(hook, hook.move(delay_s=delay_s, keep=False))
        self.drop(hook)

    async def _rest(self, hook: Hook) -> None:
        """Forget the hook if the task has ended or waits. The store keeps it due if the task has just changed."""
        if hook.settled is None:
            stored = await self.store.read_task(hook.config.task_id)
            if stored is None:
                self.drop(hook)
                return
            hook.settled = stored.head.state in SETTLED
        if hook.settled and not hook.lost:
            await self.moves.save(hook, hook.move(delay_s=None, keep=False))
            self.drop(hook)


class Answered(Undeliverable):
    """The receiver refused the call with this status."""

    def __init__(self, status: int) -> None:
        self.status = status
        why = ", it is gone" if status == GONE else ", redirects are not followed" if 300 <= status < 400 else ""
        super().__init__(f"it answered {status}{why}", final=False)


def jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311  # many must not come back at the same moment
