"""`roost send`: a message to an agent, and the conversation that follows."""

from __future__ import annotations

import sys
import uuid
from typing import Annotated, NoReturn

import typer

from roost.cli.client import HostClient
from roost.cli.errors import INTERRUPTED, USAGE, WAITING, CommandFailed, Unreachable
from roost.cli.find import default_agent
from roost.cli.follow import Follow
from roost.cli.options import DEFAULT_URL, Json, Tenant, Token, Url, command
from roost.cli.output import Lines
from roost.cli.transcript import Screen, Transcript
from roost.cli.watch import conclude, goes_on
from roost.protocol.states import PAUSED
from roost.protocol.types import Message, Part, Role, SendMessageRequest

PROMPT = "> "


def send(
    words: Annotated[list[str], typer.Argument(metavar="[AGENT] TEXT", help="The agent, and what to say to it.")],
    task: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="The task that the message answers.")
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="The conversation that the message belongs to.")
    ] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Send a message and show what comes back, as it comes.

    AGENT can be left out where the host has one agent, or one at its root.
    Exits with 0 when the task completed, 1 when it did not, 3 when it waits for an answer.
    """
    if len(words) > 2:
        raise CommandFailed(
            f"give AGENT and TEXT, the text in quotes: roost send {words[0]} '{' '.join(words[1:])}'", USAGE
        )
    client = HostClient(url, token, tenant)
    agent = words[0] if len(words) == 2 else default_agent(client)
    screen: Screen = Lines() if as_json else Transcript(known=True)
    Conversation(client, agent, task, screen).hold(words[-1], context)


class Conversation:
    def __init__(self, client: HostClient, agent: str, task_id: str, screen: Screen) -> None:
        self.client = client
        self.agent = agent
        self.screen = screen
        self.follow = Follow(client, agent, task_id, screen.note)
        self.asked = False

    def hold(self, text: str, context_id: str) -> NoReturn:
        """Until the task is over, or waits for what nobody is there to say."""
        try:
            while self._say(text, context_id):
                text, context_id = self._answer(), ""
        except KeyboardInterrupt:
            self._interrupted()
        except Unreachable as error:
            if not self.asked:
                raise
            raise CommandFailed(f"{error}; then answer with {self._answer_command()}") from None
        self.screen.end()
        conclude(self.follow, self.screen)

    def _say(self, text: str, context_id: str) -> bool:
        """True if the task then asks for more."""
        message = Message(
            message_id=str(uuid.uuid4()),
            role=Role.USER,
            parts=[Part(text=text)],
            context_id=context_id,
            task_id=self.follow.task_id,
        )
        self.asked = False
        for event in self.follow.send(SendMessageRequest(message=message)):
            self.screen.show(event)
            status = self.follow.status
            if status is not None and status.state in PAUSED:
                return True
        return False

    def _answer(self) -> str:
        self.asked = True
        if sys.stdin.isatty():
            while True:
                print(PROMPT, end="", file=sys.stderr, flush=True)
                line = sys.stdin.readline()
                if line.strip():
                    return line.rstrip("\n")
                if not line:
                    break
        self.screen.end()
        self.screen.note(f"task {self.follow.task_id} waits for an answer: {self._answer_command()}")
        raise typer.Exit(WAITING)

    def _answer_command(self) -> str:
        return command(self.client.url, "send", self.agent, "your answer", "--task", self.follow.task_id)

    def _interrupted(self) -> NoReturn:
        self.screen.end()
        if self.asked:
            self.screen.note(f"task {self.follow.task_id} goes on waiting: {self._answer_command()}")
        elif self.follow.task_id:
            self.screen.note(goes_on(self.follow))
        else:
            tasks = command(self.client.url, "tasks", self.agent)
            self.screen.note(f"interrupted before the host had answered; {tasks} shows whether the message arrived")
        raise typer.Exit(INTERRUPTED)
