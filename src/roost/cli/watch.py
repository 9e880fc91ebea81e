"""`roost watch`: follows a task to its end, across lost connections and restarts."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from roost.cli.client import HostClient, agent_of
from roost.cli.errors import ERROR, INTERRUPTED
from roost.cli.follow import Follow
from roost.cli.options import DEFAULT_URL, Json, OfAgent, Tenant, Token, Url, command
from roost.cli.output import Lines, text_of, word
from roost.cli.transcript import Screen, Transcript
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import TaskState


def watch(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    agent: OfAgent = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show a task until it ends. After a lost connection, the output continues where it stopped."""
    client = HostClient(url, token, tenant)
    screen: Screen = Lines() if as_json else Transcript(known=False)
    follow = Follow(client, agent or agent_of(client, task), task, screen.note)
    try:
        for event in follow.watch():
            screen.show(event)
            if _asks(follow) and not event.response.artifact_update:
                answer = command(client.url, "send", follow.agent, "your answer", "--task", task)
                screen.note(f"the task waits for an answer: {answer}")
    except KeyboardInterrupt:
        screen.end()
        screen.note(goes_on(follow))
        raise typer.Exit(INTERRUPTED) from None
    screen.end()
    conclude(follow, screen)


def conclude(follow: Follow, screen: Screen) -> NoReturn:
    """Report how the task ended, and exit with the matching code."""
    status = follow.status
    if status is None:
        raise typer.Exit
    completed = status.state is TaskState.COMPLETED
    why = f": {text_of(status.message.parts).strip()}" if status.message is not None and not completed else ""
    screen.note(f"task {follow.task_id} {word(status.state)}{why}")
    raise typer.Exit(0 if completed else ERROR)


def goes_on(follow: Follow) -> str:
    """Say what a user who stops following can do next."""
    task = (follow.task_id, "--agent", follow.agent)
    url = follow.client.url
    if follow.status is not None and follow.status.state in TERMINAL:
        return f"task {follow.task_id} has ended: {command(url, 'watch', *task)} shows it"
    return (
        f"task {follow.task_id} continues: {command(url, 'watch', *task)} follows it,"
        f" {command(url, 'cancel', *task)} cancels it"
    )


def _asks(follow: Follow) -> bool:
    return follow.status is not None and follow.status.state in PAUSED
