"""A budget of bytes for large bodies in memory, for the host and for each account."""

from __future__ import annotations

import asyncio
from collections import deque

from roost.protocol.errors import A2AError, TooManyRequests, Unavailable

SHARE = 4
"""One account may use this fraction of the host's budget: one fourth."""
RETRY_S = 5


class ByteBudget:
    """Bytes that may be in memory for slow clients. `what` names them in errors.

    Who finds no room waits. Accounts take turns, and within an account the first comes first, so that nobody has to
    wait for another account's unread bodies while there is room for its own. A body that is larger than a bound is
    let in alone: then the bound is that body.
    """

    def __init__(self, most: int, what: str, share: int | None = None) -> None:
        self.most = most
        self.what = what
        self.share = most // SHARE if share is None else share
        self.used = 0
        self.by_account: dict[str, int] = {}
        """The bytes that each account uses; accounts that use none are absent."""
        self.waiting: dict[str, deque[_Claim]] = {}
        """The claims that wait, by account; the account whose turn it is comes first."""

    def try_take(self, account: str, size: int) -> bool:
        """Take room if there is some now, and nobody has to be served before."""
        if account in self.waiting or not self._fits(account, size):
            return False
        if any(self._has_share(other, claims[0].size) for other, claims in self.waiting.items()):
            return False
        self._add(account, size)
        return True

    async def take(self, account: str, size: int, wait_s: float) -> None:
        """Wait for room, for at most `wait_s` seconds. Raise an error that says whose bodies are in the way."""
        if self.try_take(account, size):
            return
        claim = _Claim(size)
        self.waiting.setdefault(account, deque()).append(claim)
        try:
            async with asyncio.timeout(wait_s):
                await claim.granted
        except BaseException as error:
            if claim.granted.done() and not claim.granted.cancelled():
                self.give_back(account, size)
            else:
                self._withdraw(account, claim)
            if isinstance(error, TimeoutError):
                raise self.refusal(account, size) from None
            raise

    def give_back(self, account: str, size: int) -> None:
        self._add(account, -size)
        self._serve()

    def resize(self, account: str, size: int, now: int) -> None:
        """Change what was taken to what is needed, even if that is more than there is room for."""
        self._add(account, now - size)
        self._serve()

    def refusal(self, account: str, size: int) -> A2AError:
        """Return the error for someone who has found no room."""
        if not self._has_share(account, size):
            return TooManyRequests(
                f"{self.what} have {self.by_account[account]} bytes, and at most {self.share} are kept for one caller:"
                " finish with them, then try again",
                retry_after=RETRY_S,
            )
        return Unavailable(
            "Too many large requests and responses wait for their clients; try again later", retry_after=RETRY_S
        )

    def _add(self, account: str, size: int) -> None:
        self.used += size
        used = self.by_account.get(account, 0) + size
        if used:
            self.by_account[account] = used
        else:
            self.by_account.pop(account, None)

    def _fits(self, account: str, size: int) -> bool:
        return self._has_share(account, size) and (not self.used or self.used + size <= self.most)

    def _has_share(self, account: str, size: int) -> bool:
        used = self.by_account.get(account, 0)
        return not used or used + size <= self.share

    def _serve(self) -> None:
        """Grant what fits. A claim that only the host has no room for lets no other pass, or it would never fit."""
        while True:
            for account, claims in self.waiting.items():
                if self._has_share(account, claims[0].size):
                    break
            else:
                return
            if not self._fits(account, claims[0].size):
                return
            claim = claims.popleft()
            del self.waiting[account]
            if claims:
                self.waiting[account] = claims  # behind the others
            if not claim.granted.done():  # otherwise whoever made it has just given up
                self._add(account, claim.size)
                claim.granted.set_result(None)

    def _withdraw(self, account: str, claim: _Claim) -> None:
        claims = self.waiting.get(account)
        if claims is not None and claim in claims:
            claims.remove(claim)
            if not claims:
                del self.waiting[account]
        self._serve()


class _Claim:
    """Someone who waits for room."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
