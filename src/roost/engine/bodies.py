"""Large bodies in memory: each within the budget, and one copy for all who read the same one at the same time.

A body is kept while a client reads it, and no longer. docs/adr/0029-unread-answers.md has the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

from roost.engine.budget import ByteBudget

LARGE = 64 * 1024
"""Bytes beyond which a body counts. The number of connections bounds what is smaller."""
BATCH_BYTES = LARGE
"""Bytes of events at which a batch of a stream ends. An event that is larger is alone in its batch."""
MAKERS = 2
"""Bodies that are made at the same time: each needs a few times its size until it is done."""
CONVERTED = 2
"""A door that converts a body for its reader needs this many times its size."""
MB = 1024 * 1024


class Made(NamedTuple):
    """A body, and the seq of the last entry that it includes."""

    data: bytes
    seq: int = 0


Make = Callable[[], Awaitable[Made]]


class Bodies:
    """The large bodies of a host. `wait_s` is how long a reader waits for room."""

    def __init__(self, most: int = 128 * MB, wait_s: float = 60.0) -> None:
        self.budget = ByteBudget(most, "Responses to you that are not read yet")
        self.wait_s = wait_s
        self.shared: dict[Hashable, _LargeBody] = {}
        """The bodies that more than one reader can have, while anyone has them."""
        self.makers = asyncio.Semaphore(MAKERS)

    def begin(
        self, account: str, size: int, factor: int, key: Hashable | None, make: Make, found: list[Made]
    ) -> _LargeBody:
        """Return a body that is being made, or that `found` has, if there is room for it now."""
        body = _LargeBody(account, size * factor, factor, key)
        if found and self.budget.try_take(account, body.size):
            body.taken, body.made = body.size, found[0]
        else:
            body.making = asyncio.get_running_loop().create_task(self._make(body, make))
            body.making.add_done_callback(_retrieve)
        if key is not None:
            self.shared[key] = body
        return body

    def admit(self, account: str, size: int) -> _LargeBody:
        """Count a body that its door has made. Raise if there is no room for it now."""
        if not self.budget.try_take(account, size):
            raise self.budget.refusal(account, size)
        body = _LargeBody(account, size, 1, None)
        body.taken, body.readers = size, 1
        return body

    def leave(self, body: _LargeBody) -> None:
        """Forget the body if this was its last reader."""
        body.readers -= 1
        if body.readers:
            return
        self._unshare(body)
        if body.making is not None:
            body.making.cancel()
        body.made = None
        self._give_back(body)

    async def _make(self, body: _LargeBody, make: Make) -> None:
        try:
            await self.budget.take(body.account, body.size, self.wait_s)
            body.taken = body.size
            async with self.makers:
                body.made = await make()
            size = len(body.made.data) * body.factor
            self.budget.resize(body.account, body.taken, size)
            body.taken = size
        except BaseException:
            self._unshare(body)
            self._give_back(body)
            raise

    def _unshare(self, body: _LargeBody) -> None:
        if body.key is not None and self.shared.get(body.key) is body:
            del self.shared[body.key]

    def _give_back(self, body: _LargeBody) -> None:
        taken, body.taken = body.taken, 0
        if taken:
            self.budget.give_back(body.account, taken)


class _LargeBody:
    """One large body, and the number of its readers."""

    __slots__ = ("account", "factor", "key", "made", "making", "readers", "size", "taken")

    def __init__(self, account: str, size: int, factor: int, key: Hashable | None) -> None:
        self.account = account
        self.size = size
        self.factor = factor
        self.key = key
        self.taken = 0
        """Bytes of the budget that are taken for it."""
        self.readers = 0
        self.made: Made | None = None
        self.making: asyncio.Task[None] | None = None


def _retrieve(making: asyncio.Task[None]) -> None:
    """Mark an error as seen: the last reader may have left at the same moment."""
    if not making.cancelled():
        making.exception()


class BodyReader:
    """The client of one request. It has one large body at a time, until `release`.

    account: whose budget it is.
    converts: the door makes another body of it, for this client alone.
    left: waits until the client has left, and raises what its door knows that by.
    """

    __slots__ = ("_body", "account", "bodies", "converts", "left")

    def __init__(
        self, bodies: Bodies, account: str, left: Callable[[], Awaitable[Any]], *, converts: bool = False
    ) -> None:
        self.bodies = bodies
        self.account = account
        self.left = left
        self.converts = converts
        self._body: _LargeBody | None = None

    async def read(self, size: int, key: Hashable | None, make: Make, found: list[Made] | None = None) -> Made:
        """Return the body that `make` makes, as soon as there is room for it.

        size: about its bytes. key: the same for all whose body is the same; None if nobody else's is.
        found: the body where it is made already. The list is emptied if that has to be made again later, because a
        body must not be in memory while there is no room for it.
        """
        self.release()
        found = [] if found is None else found
        if size <= LARGE:
            return found[0] if found else await make()
        shared = None if key is None or self.converts else (self.account, key)
        body = None if shared is None else self.bodies.shared.get(shared)
        if body is None:
            factor = CONVERTED if self.converts else 1
            body = self.bodies.begin(self.account, size, factor, shared, make, found)
        found.clear()
        body.readers += 1
        self._body = body
        if body.made is None:
            await self._wait(body)
        assert body.made is not None
        return body.made

    def admit(self, size: int) -> None:
        """Count a body that is made already and cannot be made again. Raise if there is no room for it now."""
        if size <= LARGE or self._body is not None:
            return
        self._body = self.bodies.admit(self.account, size)

    async def _wait(self, body: _LargeBody) -> None:
        assert body.making is not None
        leaving: asyncio.Future[Any] = asyncio.ensure_future(self.left())
        try:
            await asyncio.wait({body.making, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if body.making.done():
                body.making.result()
            else:
                leaving.result()
        except BaseException:
            self.release()
            raise
        finally:
            leaving.cancel()

    def release(self) -> None:
        """Give the body back: it has been sent, or nobody reads it any more."""
        body, self._body = self._body, None
        if body is not None:
            self.bodies.leave(body)


async def within(
    reader: BodyReader | None, size: int, key: Hashable | None, make: Make, found: list[Made] | None = None
) -> Made:
    """Read a body for a client; without one, at once and uncounted."""
    if reader is None:
        return found[0] if found else await make()
    return await reader.read(size, key, make, found)
