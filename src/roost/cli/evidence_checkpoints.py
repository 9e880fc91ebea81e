"""`roost evidence checkpoint`, `checkpoints` and `audit`: what was on record when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.cli.errors import ERROR, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, one_line, table
from roost.cli.settings import STORE, STORE_AND_KEYS, with_settings
from roost.cli.store import with_store
from roost.engine.checkpoints import Checkpoint, CheckpointBusy
from roost.engine.ports import AdminStore
from roost.protocol.codec import encode
from roost.settings import Settings

if TYPE_CHECKING:
    from roost.evidence.checkpoint import Statement
    from roost.evidence.checkpoint_audit import Audit
    from roost.identity.card_verification import Jwk

UNJUDGED = 2
MAX_FILE = 1 << 20

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The file to write; stdout by default.", show_default=False)
]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="The most checkpoints to show, the newest ones.")]
Held = Annotated[Path, typer.Option("--since", metavar="FILE", help="The file with the checkpoint that you hold.")]
Trust = Annotated[
    Path | None, typer.Option("--trust", metavar="JWKS", help="The host's keys, from a source that you trust.")
]


@with_settings(*STORE_AND_KEYS)
def checkpoint(out: Out = None, **flags: Any) -> None:
    """Make a checkpoint of all tasks now, and print it. Keep it where the host cannot reach it."""
    from roost.cli.keys import keyring
    from roost.evidence.checkpoint import make
    from roost.identity.keys import NoKey

    async def work(store: AdminStore, settings: Settings) -> Checkpoint:
        try:
            made = await make(store, keyring(store, settings))
        except (CheckpointBusy, NoKey) as error:
            raise CommandFailed(str(error)) from None
        assert made is not None
        return made

    made = with_store(flags, work)
    if out is None:
        json_line(made.statement)
        return
    try:
        out.write_bytes(made.statement + b"\n")
    except OSError as error:
        raise CommandFailed(f"cannot write {out}: {error.strerror}") from None
    print(f"{out} holds checkpoint {made.number}")


@with_settings(*STORE)
def checkpoints(limit: Limit = 50, as_json: Json = False, **flags: Any) -> None:
    """List the checkpoints, the newest first."""
    from roost.evidence.checkpoint import BadCheckpoint, read_statement

    async def work(store: AdminStore, settings: Settings) -> list[Checkpoint]:
        found: list[Checkpoint] = []
        number = 0
        while some := await store.read_checkpoints(number, 1000):
            found = [*found, *some][-limit:]
            number = some[-1].number
        return found[::-1]

    found = with_store(flags, work)
    if as_json:
        json_line(b'{"items":[%b]}' % b",".join(one.statement for one in found))
        return
    rows = []
    for one in found:
        try:
            said = read_statement(one.statement)
            rows.append([str(said.number), said.time, str(said.count), said.root])
        except BadCheckpoint as error:
            rows.append([str(one.number), "?", "?", str(error)])
    if rows:
        table(("NUMBER", "TIME", "TASKS", "ROOT"), rows)
    else:
        note(
            "there are no checkpoints yet: `roost evidence checkpoint` makes one, and a host every checkpoint_s seconds"
        )


@with_settings(*STORE)
def audit(since: Held, trust: Trust = None, as_json: Json = False, **flags: Any) -> None:
    """Find edits of the journal that were made after a checkpoint that you hold, and name them.

    Exit code 0: no edits. 1: the journal was edited. 2: undecidable.
    """
    from msgspec import json, to_builtins

    from roost.evidence.checkpoint import signer_of
    from roost.evidence.checkpoint_audit import LIMITATIONS
    from roost.evidence.checkpoint_audit import audit as look
    from roost.evidence.keys import BadSignature
    from roost.identity.keys import EVIDENCE

    held = read_held(since)
    trusted = None if trust is None else read_trust(trust)
    if trusted is not None:
        try:
            signer_of(held, trusted)
        except BadSignature as error:
            raise CommandFailed(
                f"it cannot be judged: no key that you gave has signed {since}: {error}", UNJUDGED
            ) from None

    async def work(store: AdminStore, settings: Settings) -> Audit:
        stored = [json.decode(key.public) for key in (await store.read_identities(0)).keys if key.agent == EVIDENCE]
        return await look(store, held, stored if trusted is None else trusted)

    try:
        found = with_store(flags, work)
    except CommandFailed as error:
        raise CommandFailed(f"it cannot be judged: {error}", UNJUDGED) from None
    outcome = "edited" if found.faults else "unjudged" if found.unknown else "sound"
    if as_json:
        blind = {"cannot_detect": LIMITATIONS, "anchored": trusted is not None}
        json_line(encode({"outcome": outcome, **to_builtins(found), **blind}))
    else:
        for line in _lines(found, held, anchored=trusted is not None):
            print(one_line(line))
    raise typer.Exit({"sound": 0, "edited": ERROR, "unjudged": UNJUDGED}[outcome])


def _lines(found: Audit, held: Statement, *, anchored: bool) -> Iterator[str]:
    from roost.evidence.checkpoint_audit import LIMITATIONS

    for fault in found.faults:
        yield fault.text()
    if found.more:
        yield f"and {found.more} more"
    for stone in found.pruned:
        proof = "" if stone.proven else "; it continued after its last checkpoint, so its end is not proven"
        yield f"task {stone.task}: pruned after entry {stone.seq}{proof}"
    if found.more_pruned:
        yield f"and {found.more_pruned} more were pruned"
    yield f"{found.checkpoints} checkpoints, {found.tasks} tasks in them, {found.entries} entries, {found.newer} newer"
    anchor = "keys that you gave" if anchored else "not anchored"
    yield f"signed by {', '.join(found.signers) or 'nobody'}, {anchor}"
    for text in LIMITATIONS:
        yield f"not detectable: {text}"
    for text in found.unknown:
        yield f"cannot be judged: {text}; fetch the host's keys again: if the key is not there, the host did not sign"
    if found.faults:
        yield f"the journal was edited after checkpoint {held.number} of {held.time}"
    elif found.unknown:
        yield f"no edit found, but not everything after checkpoint {held.number} of {held.time} can be judged"
    else:
        yield f"no edit found, neither in checkpoint {held.number} of {held.time} nor in what is newer and still there"


def read_held(file: Path) -> Statement:
    from roost.evidence.checkpoint import BadCheckpoint, read_statement

    try:
        return read_statement(_read(file).strip())
    except BadCheckpoint as error:
        raise CommandFailed(f"{file}: {error}", UNJUDGED) from None


def read_trust(file: Path) -> list[Jwk]:
    from roost.identity.card_verification import Unverifiable, read_jwks

    try:
        return read_jwks(_read(file))
    except Unverifiable as error:
        raise CommandFailed(f"{file}: {error}", UNJUDGED) from None


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE)
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", UNJUDGED) from None
