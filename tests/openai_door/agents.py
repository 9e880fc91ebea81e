"""Agents as models: each shows one thing that a client of OpenAI can see."""

import asyncio

from roost import Agent, Artifact, Part
from roost.extensions.data import TokenUsage
from roost.protocol.types import TaskState

GATES: dict[str, asyncio.Event] = {}

URI = "https://proto-labs.ai/a2a/ext/"


def gate(name: str) -> asyncio.Event:
    return GATES.setdefault(name, asyncio.Event())


release = Agent("release", parallel=True)


@release.on_message
async def open_gate(task):
    """Opens the gate that its message names."""
    gate(task.text).set()
    return "open"


words = Agent("words", parallel=True)


@words.on_message
async def say_words(task):
    """Streams its message word by word."""
    for word in task.text.split(" "):
        yield word + " "


hold = Agent("hold", parallel=True)


@hold.on_message
async def wait_at_gate(task):
    """Streams a word, waits at the gate that its message names, and streams another."""
    yield "one "
    await gate(task.text).wait()
    yield "two"


given = Agent("given", parallel=True, input_modes=["*/*"])


@given.on_message
async def show_what_came(task):
    """Returns what it was given, as data."""
    parts = [
        {
            "text": part.text or None,
            "raw": len(part.raw) if part.raw else None,
            "url": part.url or None,
            "kind": part.media_type,
            "name": part.filename,
        }
        for part in task.parts
    ]
    return {"parts": parts, "beside": task.message.metadata, "metadata": task.metadata, "context": task.context_id}


guide = Agent("guide")


@guide.on_message
async def two_questions(task):
    """Asks twice, and says something before and after."""
    yield f"Welcome, {task.text}. "
    city = (await task.ask("Which city?")).text
    yield f"{city} it is. "
    day = (await task.ask("Which day?")).text
    yield f"See you on {day}."


login = Agent("login")


@login.on_message
async def needs_login(task):
    """Waits for an authorization."""
    await task.ask("Please sign in at https://example.com/login", auth=True)
    return "signed in"


silent = Agent("silent")


@silent.on_message
async def asks_without_words(task):
    """Asks with a form and no text."""
    form = {"kind": "approval", "title": "Delete it?", "detail": "All of it."}
    await task.ask(Part(data=form, metadata={"mimeType": "application/vnd.protolabs.hitl-v1+json"}))
    return "deleted"


boom = Agent("boom")


@boom.on_message
async def fail(task):
    """Fails after a word, with an exception that holds a secret."""
    yield "well, "
    raise RuntimeError("the password is hunter2")


reject = Agent("reject")


@reject.on_message
async def refuse(task):
    """Does not do such work."""
    task.reject("Not my work")


direct = Agent("direct", direct=True)


@direct.on_message
async def reply(task):
    """Answers at once, without a task."""
    task.reply(f"You said {task.text}")


many = Agent("many")


@many.on_message
async def several_artifacts(task):
    """Gives two artifacts, a picture and a link."""
    yield Artifact(artifact_id="a", parts=[Part(text="first")])
    yield Artifact(artifact_id="b", parts=[Part(text="second")])
    yield Artifact(artifact_id="c", parts=[Part(raw=b"123", filename="x.png", media_type="image/png")])
    yield Artifact(artifact_id="d", parts=[Part(url="https://example.com/y")])
    task.done("That is all.")


again = Agent("again")


@again.on_message
async def says_it_anew(task):
    """Says its artifact again from the beginning, as a run after a crash does, and a little more."""
    for pieces in (["one ", "two "], ["one ", "two ", "three"]):
        for number, piece in enumerate(pieces):
            if number == 0:
                yield Artifact(artifact_id="output", parts=[Part(text=piece)])
            else:
                yield piece


weather = Agent("weather")


@weather.on_message
async def replaces_what_it_said(task):
    """Says its artifact anew in each turn; what it says last begins with what it said before."""
    yield Artifact(artifact_id="a", parts=[Part(text="Yes")])
    await task.ask("Sure?")
    yield Artifact(artifact_id="a", parts=[Part(text="Yes")])
    await task.ask("Really?")
    yield Artifact(artifact_id="a", parts=[Part(text="Yesterday it rained")])


crashed = Agent("crashed")


@crashed.on_message
async def goes_on_after_a_crash(task):
    """Asks, and then says its artifact again with all of the earlier turn, as a run after a crash does."""
    yield "Hello. "
    said = (await task.ask("Who?")).text
    yield "one "
    yield Artifact(artifact_id="output", parts=[Part(text="Hello. "), Part(text=f"{said} ")])
    yield "two"


def cost(form: int, tokens: object = 12.0) -> tuple[list[Part], dict | None]:
    """cost-v1 in each of the forms that agents use."""
    usage = {"input_tokens": tokens, "output_tokens": 3, "cache_read_input_tokens": 5.0}
    payload = {"usage": usage, "costUsd": 0.1, "success": True}
    return mark("cost-v1", payload, form)


def mark(name: str, payload: dict, form: int) -> tuple[list[Part], dict | None]:
    if form == 1:
        return [Part(data=payload, metadata={"mimeType": f"application/vnd.protolabs.{name}+json"})], None
    if form == 2:
        return [Part(data={"content": {"value": payload}}, metadata={"mimeType": URI + name})], None
    return [Part(text="")], {URI + name: payload}


priced = Agent("priced", parallel=True)


@priced.on_message
async def says_what_it_cost(task):
    """Ends with a cost-v1 in the form that its message names; `odd` gives what is no number, `turn` reports usage."""
    yield "cheap"
    if task.text == "turn":
        task._turn.usage(TokenUsage(10, 3, 0))
        task._turn.usage(TokenUsage(2, 0, 5), 0.1)
        return
    if task.text == "odd":
        parts, metadata = cost(1, "many")
    else:
        parts, metadata = cost(int(task.text))
    yield Artifact(artifact_id="cost", parts=parts, metadata=metadata)


tools = Agent("tools", parallel=True)


@tools.on_message
async def calls_tools(task):
    """Tells of two tool calls, one that fails, in the form that its message names."""
    form = int(task.text)

    async def tell(call: str, phase: str, **more: object) -> None:
        parts, metadata = mark("tool-call-v1", {"toolCallId": call, "name": "look", "phase": phase, **more}, form)
        message = task._turn.message(parts, metadata)
        task._turn.status(TaskState.WORKING, message)

    await tell("c1", "started", args={"q": "bird"})
    await tell("c1", "started", args={"q": "bird"})
    yield "Looking. "
    await tell("c1", "completed", result="found " + "x" * 2000)
    await tell("c2", "started")
    await tell("c2", "failed", error="no such thing")
    yield "Done."
