"""`roost new`: writes the file of a new agent."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from roost.agents.agent import ID
from roost.cli.errors import USAGE, CommandFailed


class TemplateKind(enum.StrEnum):
    HELLO = "hello"
    STREAM = "stream"
    ASK = "ask"


_TEMPLATES = {
    TemplateKind.HELLO: '''"""An agent that answers at once."""

from roost import Agent

agent = Agent("NAME")


@agent.on_message
async def answer(task):
    """Greets whoever writes to it."""
    return f"Hello, {task.text}!"
''',
    TemplateKind.STREAM: '''"""An agent whose answer streams: every yield is an event that the client sees at once."""

import asyncio

from roost import Agent

agent = Agent("NAME")


@agent.on_message
async def answer(task):
    """Says the message back, word by word."""
    task.status("Reading")
    for word in task.text.split():
        await asyncio.sleep(0.2)
        yield f"{word} "
''',
    TemplateKind.ASK: '''"""An agent that asks back: its task waits for the answer, across restarts."""

from roost import Agent

agent = Agent("NAME")


@agent.on_message
async def answer(task):
    """Asks for a city, then plans a day there."""
    city = (await task.ask("Which city?")).text  # the function is called again from the top with the answer
    sights = await task.step("sights", look_up, city)  # remembered if the host dies
    for sight in sights:
        yield f"- {sight}\\n"


async def look_up(city):
    return [f"{city} by foot", f"{city} by boat", f"{city} from above"]
''',
}


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent's name; the file is NAME.py.")],
    kind: Annotated[TemplateKind, typer.Option(help="The template to begin with.")] = TemplateKind.HELLO,
) -> None:
    """Write the file of a new agent."""
    name = name.removesuffix(".py")
    if not ID.fullmatch(name):
        raise CommandFailed(f"{name!r} cannot be an agent's name: use letters, digits, '.', '_' and '-'", USAGE)
    if name in sys.stdlib_module_names or name == "roost":
        raise CommandFailed(f"{name}.py would hide the Python module {name!r}; choose another name", USAGE)
    file = Path(f"{name}.py")
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(_TEMPLATES[kind].replace("NAME", name))
    except FileExistsError:
        raise CommandFailed(f"{file} exists already; choose another name, or remove it first") from None
    except OSError as error:
        raise CommandFailed(f"cannot write {file}: {error.strerror}") from None
    print(f"Wrote {file}. Next:\n    roost serve {file}\nand in another terminal:\n    roost send 'world'")
