"""Agents to be called, or not: what they do matters less than who may see it."""

import asyncio
import os
from pathlib import Path

from roost import Agent, AgentSkill, Caller, ExtendedCard

GATES = Path(os.environ.get("AGENT_GATES", "."))

desk = Agent("desk", card_extras={"x-desk": {"floor": 3}})
other = Agent("other", parallel=True)
teller = Agent("teller", parallel=True)
turns = Agent("turns")
keyed = Agent("keyed", schemes=["apiKey"])


@desk.on_message
async def ask(task):
    """Asks for a name and greets it."""
    name = (await task.ask("Your name?")).text
    return f"hello {name}"


@desk.extended_card
def more(caller: Caller) -> ExtendedCard | None:
    """Keyholders hear of one thing more, strangers of nothing."""
    if caller.tenant == "acme":
        return None
    skills = ["vault", "keys"] if "agent:*" in caller.scopes else ["vault"]
    return ExtendedCard(
        description=f"The desk, to {caller.subject}.",
        skills=[AgentSkill(id=name, name=name, description=f"Opens the {name}.", tags=["desk"]) for name in skills],
    )


@other.on_message
async def nothing(task):
    """Is not the desk."""
    return "nothing"


@teller.on_message
async def tell(task):
    """Says who asked, and for whom."""
    yield f"{task.caller} "
    yield f"{task.tenant} "
    yield task.text


@turns.on_message
async def wait(task):
    """Goes on when there is a file called as its message."""
    yield "begun"
    while not (GATES / task.text).exists():
        await asyncio.sleep(0.01)
    yield " and ended"


@keyed.on_message
async def with_a_key(task):
    """Takes only X-API-Key."""
    return task.caller
