"""`roost push`: lists and retries webhooks, in the store itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from roost.cli.errors import USAGE, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, table
from roost.cli.settings import STORE, with_settings
from roost.cli.store import with_store
from roost.engine.ids import timestamp
from roost.engine.ports import AdminStore
from roost.engine.store_types import Push
from roost.engine.webhook import host_of, opened
from roost.identity.seal import KeyFileError, Seal, WrongKey, load_key
from roost.protocol.codec import encode
from roost.settings import Settings

MOST_DEAD = 10_000
"""The most dead letters that are counted."""

Limit = Annotated[int, typer.Option(min=1, metavar="N", help="The most webhooks to show.")]
Failing = Annotated[
    bool, typer.Option("--failing", help="Show only webhooks that fail, are paused, or have dead letters.")
]
OfTask = Annotated[
    str, typer.Argument(metavar="TASK", show_default=False, help="Retry only the webhooks of this task.")
]
OneConfig = Annotated[str, typer.Argument(metavar="CONFIG", show_default=False, help="Retry only this webhook.")]
All = Annotated[bool, typer.Option("--all", help="Retry the failing webhooks of all tasks.")]


class PushListing(NamedTuple):
    pushes: list[Push]
    dead: Counter[tuple[str, str]]
    seal: Seal | None


@with_settings(*STORE)
def list_webhooks(failing: Failing = False, limit: Limit = 50, as_json: Json = False, **flags: Any) -> None:
    """List the webhooks, the newest first."""

    async def look(store: AdminStore, settings: Settings) -> PushListing:
        dead = Counter((letter.task_id, letter.config_id) for letter in await store.list_dead(MOST_DEAD))
        pushes = await store.list_pushes(failing=failing, limit=limit + 1)
        if failing:
            known = {_key(push) for push in pushes}
            for task_id in {task_id for task_id, config_id in dead if (task_id, config_id) not in known}:
                pushes += [push for push in await store.read_pushes(task_id) if _key(push) in dead.keys() - known]
            pushes.sort(key=lambda push: push.created, reverse=True)
        return PushListing(pushes, dead, _seal(settings))

    found = with_store(flags, look)
    shown = [_described(push, found) for push in found.pushes[:limit]]
    if as_json:
        json_line(encode({"configs": shown}))
    elif shown:
        columns = ("task", "config", "agent", "host", "state", "deadLetters", "error")
        heads = ("TASK", "CONFIG", "AGENT", "HOST", "STATE", "DEAD", "LAST ERROR")
        table(heads, [[str(row[column]) for column in columns] for row in shown], cut=True)
    else:
        note("no webhook fails" if failing else "there are no webhooks")
    if len(found.pushes) > limit:
        note(f"there are more: --limit {limit * 2}")


@with_settings(*STORE)
def retry(task: OfTask = "", config: OneConfig = "", everything: All = False, **flags: Any) -> None:
    """Call failing and paused webhooks again, beginning with their first dead letter."""
    if bool(task) == everything:
        raise CommandFailed("name the webhooks to retry: TASK, TASK CONFIG, or --all", USAGE)

    async def work(store: AdminStore, settings: Settings) -> int:
        return await store.retry_pushes(task or None, config or None)

    count = with_store(flags, work)
    if count:
        print(f"{count} webhook{'s are' if count > 1 else ' is'} due now: a running host calls within two seconds")
    else:
        note("none of these webhooks fails")


def _key(push: Push) -> tuple[str, str]:
    return push.config.task_id, push.config.id


def _seal(settings: Settings) -> Seal | None:
    """The key that decrypts URLs. Without it, only the hosts of the webhooks stay hidden."""
    file = Path(settings.secret_file) if settings.secret_file else Path(settings.data) / "secret.key"
    try:
        return Seal(load_key(file, create=False))
    except KeyFileError:
        return None


def _described(push: Push, found: PushListing) -> dict[str, object]:
    return {
        "task": push.config.task_id,
        "config": push.config.id,
        "agent": push.agent,
        "host": _host(push, found.seal),
        "state": _state(push),
        "attempts": push.attempts,
        "deadLetters": found.dead[_key(push)],
        "error": push.error,
        "delivered": push.config.cursor,
        "created": timestamp(push.created * 1000),
        "due": None if push.due is None else timestamp(push.due * 1000),
    }


def _host(push: Push, seal: Seal | None) -> str:
    if seal is None:
        return "sealed"
    try:
        return host_of(opened(seal, push.config).config.url)
    except WrongKey:
        return "sealed"


def _state(push: Push) -> str:
    if push.paused:
        return "paused"
    if push.attempts or push.buried:
        return f"failing {push.attempts}"
    return "at rest" if push.due is None else "due"
