"""`roost keys`: the keys that sign cards, in the store; `roost secret`: the key that encrypts secrets in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from roost.cli.errors import USAGE, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, table
from roost.cli.settings import STORE, STORE_AND_KEYS, with_settings
from roost.cli.store import me, with_store
from roost.doors.admin_views import OVERLAP_S, key_shown
from roost.engine.ports import AdminStore
from roost.identity.audit import AuditLog
from roost.identity.keys import CannotRetire, Keyring, NoSuchKey
from roost.identity.ports import SigningKey, now_ms
from roost.identity.seal import KeyFileError, Seal, load_key, make_key
from roost.identity.tokens import seconds
from roost.protocol.codec import encode
from roost.settings import Settings

FLEET = "-"
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent that signs; - for the fleet's own card.")]
Kid = Annotated[str, typer.Argument(metavar="KID", help="The id of the key, as `roost keys list` shows it.")]
Overlap = Annotated[
    str,
    typer.Option(
        metavar="TIME", show_default=False, help="How long the old key stays valid: 7d by default, 0s to end it."
    ),
]


@with_settings(*STORE)
def list_keys(as_json: Json = False, **flags: Any) -> None:
    """List the keys, without their private parts."""

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
        note("there are no keys yet: a key is made when a card is first requested")


@with_settings(*STORE_AND_KEYS)
def rotate(agent: Agent, overlap: Overlap = "", as_json: Json = False, **flags: Any) -> None:
    """Give an agent a new key. Cards are signed with both keys until the overlap ends, then with the new one."""
    try:
        wait_s = seconds(overlap) if overlap else OVERLAP_S
    except ValueError as error:
        raise CommandFailed(f"--overlap: {error}", USAGE) from None

    async def work(store: AdminStore, settings: Settings) -> SigningKey:
        name = "" if agent == FLEET else agent
        known = {key.agent for key in (await store.read_identities(0)).keys} | {*await store.agents()}
        if name and name not in known:
            raise CommandFailed(f"the store has no key and no task of an agent {agent!r}. Check the name")
        ring = keyring(store, settings)
        key = await ring.rotate(name, wait_s * 1000)
        await AuditLog(store).record(me(), "key.rotate", f"{agent} {key.kid}")
        return key

    key = with_store(flags, work)
    if as_json:
        json_line(encode(key_shown(key)))
    else:
        print(f"{agent} now signs with {key.kid}; running hosts follow within two seconds")


@with_settings(*STORE_AND_KEYS)
def retire(agent: Agent, kid: Kid, **flags: Any) -> None:
    """End a replaced key before its overlap ends. It no longer signs, and cards no longer list it.

    A key of @evidence can be retired after that too: it stays listed, because what it signed is kept.
    """

    async def work(store: AdminStore, settings: Settings) -> None:
        ring = keyring(store, settings)
        try:
            await ring.retire("" if agent == FLEET else agent, kid)
        except (NoSuchKey, CannotRetire) as error:
            raise CommandFailed(str(error)) from None
        await AuditLog(store).record(me(), "key.retire", f"{agent} {kid}")

    with_store(flags, work)
    print(f"{kid} is retired and its private part deleted; running hosts stop listing it within two seconds")


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


def secret(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
) -> None:
    """Make a key file for --secret-file that only you can read."""
    try:
        make_key(file)
    except FileExistsError:
        raise CommandFailed(
            f"{file} exists, and what its key has encrypted would be lost with it. Choose another name"
        ) from None
    except OSError as error:
        raise CommandFailed(f"cannot write {file}: {error.strerror}") from error
    print(f"{file} holds a new key. Give the same file to every host: --secret-file {file}")
