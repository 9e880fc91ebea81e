"""How an agent's function is called: on the event loop, or in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

from roost.agents.task import AgentTask, ThreadTask, emit
from roost.engine.run import Run, Unwind


class Invoker(Protocol):
    async def __call__(self, run: Run) -> None: ...


class AsyncInvoker:
    def __init__(self, handler: Callable[..., Any], join_s: float) -> None:
        self.handler = handler
        self.join_s = join_s
        self.generates = inspect.isasyncgenfunction(handler)

    async def __call__(self, run: Run) -> None:
        try:
            await self._call(run)
        except Exception:
            run.flush_text()
            raise
        except (Unwind, asyncio.CancelledError):
            raise
        except BaseException as error:  # SystemExit would end the host, others would end nothing at all
            run.flush_text()
            raise _carried(error) from error
        run.flush_text()

    async def _call(self, run: Run) -> None:
        task = AgentTask(run, self.join_s)
        if not self.generates:
            emit(run, await self.handler(task), 0)
            return
        said = self.handler(task)
        try:
            async for value in said:
                emit(run, value, self.join_s)
                await run.pace()
        finally:
            await said.aclose()


class ThreadInvoker:
    """A thread cannot be stopped from outside: it stops at its next call of `task`, and is waited for."""

    def __init__(self, handler: Callable[..., Any], join_s: float) -> None:
        self.handler = handler
        self.join_s = join_s

    async def __call__(self, run: Run) -> None:
        loop = asyncio.get_running_loop()
        task = ThreadTask(run, self.join_s, loop)
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

        threading.Thread(target=work, name=f"agent-{run.hosted.profile.id}", daemon=True).start()
        try:
            result = await asyncio.shield(done)
        except asyncio.CancelledError:
            run.stopped = True
            await asyncio.wait([done])
            done.exception()
            raise
        except Exception:
            run.flush_text()
            raise
        emit(run, result, 0)
        run.flush_text()

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
    """A function ended by an exception that means something else on the event loop."""


def _carried(error: BaseException) -> BaseException:
    """StopIteration and exits mean something else on the loop: they travel as the cause of another."""
    if isinstance(error, (Exception, Unwind)) and not isinstance(error, StopIteration):
        return error
    carried = AgentExited(f"the agent's function raised {type(error).__name__}")
    carried.__cause__ = error
    return carried
