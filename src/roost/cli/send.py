"""`roost send`: sends a message to an agent, and holds the conversation that follows."""

from __future__ import annotations

import sys
import uuid
from typing import Annotated, NoReturn

import typer

from roost.cli.client import HostClient, default_agent
from roost.cli.errors import INTERRUPTED, USAGE, WAITING, CommandFailed, Unreachable
from roost.cli.follow import Follow
from roost.cli.options import DEFAULT_URL, Json, Tenant, Token, Url, command
from roost.cli.output import Lines
from roost.cli.transcript import Screen, Transcript
from roost.cli.watch import conclude, goes_on
from roost.protocol.states import PAUSED
from roost.protocol.types import Message, Part, Role, SendMessageRequest

PROMPT = "> "


def send(
    words: Annotated[list[str], typer.Argument(metavar="[AGENT] TEXT", help="The agent, and the message to it.")],
    task: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="The task that this message answers.")
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="The conversation that this message continues.")
    ] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Send a message and show the answer as it arrives.

    AGENT can be left out if the host has only one agent, or one at its root.
    Exit code 0: the task completed. 1: it did not. 3: it waits for an answer.
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
        """Send messages until the task ends, or waits for an answer that nobody is there to give."""
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
        """Send one message. True if the task then asks for more."""
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
            self.screen.note(f"task {self.follow.task_id} keeps waiting for an answer: {self._answer_command()}")
        elif self.follow.task_id:
            self.screen.note(goes_on(self.follow))
        else:
            tasks = command(self.client.url, "tasks", self.agent)
            self.screen.note(f"interrupted before the host answered; {tasks} shows whether the message arrived")
        raise typer.Exit(INTERRUPTED)
