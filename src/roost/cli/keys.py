"""`roost keys`: the keys that sign cards, in the store itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from roost.cli.errors import USAGE, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, table
from roost.cli.settings import with_settings
from roost.cli.store import WHERE, me, with_store
from roost.doors.admin_views import OVERLAP_S, key_shown
from roost.engine.ports import AdminStore
from roost.identity.audit import AuditLog
from roost.identity.keys import CannotRetire, Keyring, NoSuchKey
from roost.identity.ports import SigningKey, now_ms
from roost.identity.seal import KeyFileError, Seal, load_key
from roost.identity.tokens import seconds
from roost.protocol.codec import encode
from roost.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Keys that sign cards: list, rotate and retire them.")

FLEET = "-"
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Whose key; - for the fleet's own card.")]
Kid = Annotated[str, typer.Argument(metavar="KID", help="Which key, as `roost keys list` shows it.")]
Overlap = Annotated[
    str,
    typer.Option(
        metavar="TIME", show_default=False, help="How long the key before goes on: 7d by default, 0s to end it."
    ),
]


def _list(as_json: Json = False, **flags: Any) -> None:
    """The keys, without their private parts."""

    async def look(store: AdminStore, settings: Settings) -> list[SigningKey]:
        return (await store.read_identities(0)).keys

    found = sorted(with_store(flags, look), key=lambda key: (key.agent, key.created))
    if as_json:
        json_line(encode({"items": [{**key_shown(key), "state": state(key)} for key in found]}))
    elif found:
        heads = ("AGENT", "ALG", "STATE", "CREATED", "KID")
        table(
            heads,
            [
                [str(key_shown(key)["agent"]), key.alg, state(key), str(key_shown(key)["created"]), key.kid]
                for key in found
            ],
        )
    else:
        note("no keys yet: one is made when a card is first asked for")


def _rotate(agent: Agent, overlap: Overlap = "", as_json: Json = False, **flags: Any) -> None:
    """Give an agent a new key. Cards are signed with both until the overlap is over, then with the new one."""
    try:
        wait_s = seconds(overlap) if overlap else OVERLAP_S
    except ValueError as error:
        raise CommandFailed(f"--overlap: {error}", USAGE) from None

    async def rotate(store: AdminStore, settings: Settings) -> SigningKey:
        name = "" if agent == FLEET else agent
        known = {key.agent for key in (await store.read_identities(0)).keys} | {*await store.agents()}
        if name and name not in known:
            raise CommandFailed(f"the store knows no agent {agent!r}: it has neither a key nor a task yet")
        ring = keyring(store, settings)
        key = await ring.rotate(name, wait_s * 1000)
        await AuditLog(store).record(me(), "key.rotate", f"{agent} {key.kid}")
        return key

    key = with_store(flags, rotate)
    if as_json:
        json_line(encode(key_shown(key)))
    else:
        print(f"{agent} signs with {key.kid} now; hosts know within a second or two")


def _retire(agent: Agent, kid: Kid, **flags: Any) -> None:
    """End a key that was replaced, before its overlap is over: it neither signs nor verifies any more.

    One of @evidence also after that: it goes on being shown, because what it signed is kept.
    """

    async def retire(store: AdminStore, settings: Settings) -> None:
        ring = keyring(store, settings)
        try:
            await ring.retire("" if agent == FLEET else agent, kid)
        except (NoSuchKey, CannotRetire) as error:
            raise CommandFailed(str(error)) from None
        await AuditLog(store).record(me(), "key.retire", f"{agent} {kid}")

    with_store(flags, retire)
    print(f"{kid} is retired: its private part is deleted, and hosts stop showing it within a second or two")


def keyring(store: AdminStore, settings: Settings) -> Keyring:
    file = Path(settings.secret_file) if settings.secret_file else Path(settings.data) / "secret.key"
    try:
        seal = Seal(load_key(file, create=not settings.secret_file and not settings.store))
    except KeyFileError as error:
        raise CommandFailed(str(error)) from None
    return Keyring(store, seal, settings.card_alg)


def state(key: SigningKey) -> str:
    if key.retired is not None or (key.until is not None and key.until <= now_ms()):
        return "retired"
    return "current" if key.until is None else "until " + str(key_shown(key)["until"])


KEY_SETTINGS = (*WHERE, "card_alg")
app.command("list")(with_settings(_list, WHERE))
app.command("rotate")(with_settings(_rotate, KEY_SETTINGS))
app.command("retire")(with_settings(_retire, KEY_SETTINGS))
