"""Calls an agent's Python function: a coroutine on the event loop, a plain function in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

from roost.agents.task import AgentTask, ThreadTask, emit
from roost.engine.turn import Turn, Unwind

Handler = Callable[..., Any]


class Invoker(Protocol):
    """Calls an agent's function for one turn."""

    async def __call__(self, turn: Turn) -> None: ...


def is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)


def invoker_of(handler: Handler, join_s: float) -> Invoker:
    """Return the invoker that calls this function in this process."""
    return AsyncInvoker(handler, join_s) if is_async(handler) else ThreadInvoker(handler, join_s)


class AsyncInvoker:
    def __init__(self, handler: Handler, join_s: float) -> None:
        self.handler = handler
        self.join_s = join_s
        self.generates = inspect.isasyncgenfunction(handler)

    async def __call__(self, turn: Turn) -> None:
        try:
            await self._call(turn)
        except Exception:
            turn.flush_text()
            raise
        except (Unwind, asyncio.CancelledError):
            raise
        except BaseException as error:  # SystemExit would end the host, others would end nothing at all
            turn.flush_text()
            raise _carried(error) from error
        turn.flush_text()

    async def _call(self, turn: Turn) -> None:
        task = AgentTask(turn, self.join_s)
        if not self.generates:
            emit(turn, await self.handler(task), 0)
            return
        values = self.handler(task)
        try:
            async for value in values:
                emit(turn, value, self.join_s)
                await turn.pace()
        finally:
            await values.aclose()


class ThreadInvoker:
    """A thread cannot be stopped from outside: it stops at its next call of `task`, and is waited for."""

    def __init__(self, handler: Handler, join_s: float) -> None:
        self.handler = handler
        self.join_s = join_s

    async def __call__(self, turn: Turn) -> None:
        loop = asyncio.get_running_loop()
        task = ThreadTask(turn, self.join_s, loop)
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(self._work, task)
            except BaseException as raised:
                error = _carried(raised)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, name=f"agent-{turn.agent_id}", daemon=True).start()
        try:
            result = await asyncio.shield(done)
        except asyncio.CancelledError:
            task.stop()
            await asyncio.wait([done])
            done.exception()
            raise
        except Exception:
            turn.flush_text()
            raise
        emit(turn, result, 0)
        turn.flush_text()

    def _work(self, task: ThreadTask) -> Any:
        result = self.handler(task)
        if not inspect.isgenerator(result):
            return result
        try:
            for value in result:
                task.emit(value)
        finally:
            result.close()
        return None


class AgentExited(Exception):
    """An agent's function ended with an exception that has another meaning on the event loop."""


def _carried(error: BaseException) -> BaseException:
    """Wrap StopIteration and exits, which have another meaning on the event loop, as the cause of an AgentExited."""
    if isinstance(error, (Exception, Unwind)) and not isinstance(error, StopIteration):
        return error
    carried = AgentExited(f"the agent's function raised {type(error).__name__}")
    carried.__cause__ = error
    return carried
