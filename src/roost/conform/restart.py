"""Runs the user's command that crashes the host and starts it again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from roost.conform.connections import Http
from roost.conform.target import card_url
from roost.conform.wire import NoAnswer

POLL_S = 0.1


def restarting(command: str, url: str, limit: float) -> Callable[[], Awaitable[None]]:
    """Return a function that runs the command and waits until the host answers at the URL of its card.

    OSError if the command fails, or if both take longer than `limit` seconds. A command that does not end in time is
    killed with all processes that it has started.
    """

    async def restart() -> None:
        try:
            async with asyncio.timeout(limit):
                await _run(command)
                await _wait_until_it_answers(card_url(url), limit)
        except TimeoutError:
            raise OSError(f"`{command}` and the start took longer than {limit:g} s: give a longer --timeout") from None

    return restart


async def _run(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
    try:
        if await process.wait():
            raise OSError(f"`{command}` ended with exit code {process.returncode}")
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _wait_until_it_answers(url: str, limit: float) -> None:
    http = Http(limit)
    try:
        while True:
            try:
                await http.fetch("GET", url)
                return
            except NoAnswer:
                await asyncio.sleep(POLL_S)
    finally:
        await http.close()
