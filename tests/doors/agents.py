"""Agents whose behaviour a test can steer: they wait at gates that a message to `release` opens."""

import asyncio
import time

from roost import Agent, AgentExtension

GATES: dict[str, asyncio.Event] = {}

REQUIRED = "https://example.com/extensions/required/v1"
OPTIONAL = "https://example.com/extensions/optional/v1"


def gate(name: str) -> asyncio.Event:
    return GATES.setdefault(name, asyncio.Event())


release = Agent("release", parallel=True)


@release.on_message
async def open_gate(task):
    """Opens the gate that its message names."""
    gate(task.text).set()
    return "open"


hold = Agent("hold", parallel=True)


@hold.on_message
async def wait_at_gate(task):
    """Streams some words, waits at the gate that its message names, and streams some more."""
    for word in ("one ", "two ", "three "):
        yield word
    await gate(task.text).wait()
    for word in ("four ", "five ", "six"):
        yield word


turns = Agent("turns")


@turns.on_message
async def one_at_a_time(task):
    """The same for the turns of one context, one after another."""
    yield "begun"
    await gate(task.text).wait()


interview = Agent("interview")


@interview.on_message
async def two_questions(task):
    """Asks twice, and waits at a gate before the second question."""
    yield "Welcome. "
    name = (await task.ask("Your name?")).text
    yield f"Hello, {name}. "
    await gate(task.text).wait()
    color = (await task.ask("Your color?")).text
    yield f"{color}, then."


flood = Agent("flood", parallel=True)


@flood.on_message
async def many(task):
    """Streams as many pieces of such a length as its message says: `1000 4096`."""
    count, size = map(int, task.text.split())
    for number in range(count):
        yield f"{number} ".ljust(size, ".")


steps = Agent("steps", parallel=True)


@steps.on_message
async def progress(task):
    """Says what it is doing, 300 times, and then the result."""
    for number in range(300):
        task.status(f"step {number}")
    return "done"


boom = Agent("boom")


@boom.on_message
async def fail(task):
    """Fails with an exception that holds a secret."""
    raise RuntimeError("the password is hunter2")


reject = Agent("reject")


@reject.on_message
async def refuse(task):
    """Does not do such work."""
    task.reject("Not my work")


login = Agent("login")


@login.on_message
async def needs_login(task):
    """Waits for an authorization."""
    await task.ask("Please sign in", auth=True)
    return "signed in"


echo = Agent("echo", parallel=True, input_modes=["*/*"], output_modes=["*/*"])


@echo.on_message
async def say_what_came(task):
    """Returns what it was told besides the message."""
    return {
        "metadata": task.metadata,
        "extensions": task.extensions,
        "text": task.accepts("text/plain"),
        "png": task.accepts("image/png"),
    }


strict = Agent("strict", extensions=[AgentExtension(uri=REQUIRED, required=True), AgentExtension(uri=OPTIONAL)])


@strict.on_message
async def with_extension(task):
    """Answers only clients that know its extension."""
    return ",".join(task.extensions)


narrow = Agent("narrow", concurrency=1, queue=1, parallel=True)


@narrow.on_message
async def one_run(task):
    """Runs one task at a time, and one more may wait."""
    yield "begun"
    await gate(task.text).wait()


named_tasks = Agent("tasks")


@named_tasks.on_message
async def confusing(task):
    """Is called like a path of the protocol."""
    return "not a path"


workers = Agent("workers", parallel=True)


@workers.on_message
async def in_the_background(task):
    """Lets five workers emit at the same time, and waits for them."""

    async def work(worker: int) -> None:
        for number in range(20):
            await asyncio.sleep(0)
            task.emit(f"{worker}:{number} ")

    await asyncio.gather(*(work(worker) for worker in range(5)))


leaver = Agent("leaver", parallel=True)
LATE: list[asyncio.Task[None]] = []


@leaver.on_message
async def leaves_work_behind(task):
    """Returns while its worker still wants to emit."""

    async def work() -> None:
        await gate(task.text).wait()
        task.emit("too late")

    LATE.append(asyncio.create_task(work()))
    return "in time"


blocking = Agent("blocking", parallel=True)


@blocking.on_message
def in_a_thread(task):
    """Blocks a thread, not the host, until its gate opens."""
    yield "begun"
    while not gate(task.text).is_set():
        time.sleep(0.01)
    yield " and ended"
