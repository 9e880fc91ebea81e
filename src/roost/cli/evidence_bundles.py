"""`roost evidence export` and `roost evidence verify`: write and check signed bundles."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from roost.cli.errors import USAGE, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, one_line
from roost.cli.settings import STORE_AND_KEYS, with_settings
from roost.cli.store import me, with_store
from roost.engine.ports import AdminStore
from roost.protocol.codec import encode
from roost.settings import Settings

if TYPE_CHECKING:
    from roost.evidence.bundle import Counts
    from roost.evidence.export_selection import Selection
    from roost.evidence.verify import BundleVerdict

UNJUDGED = 2
"""The exit code where a bundle cannot be judged."""

Tasks = Annotated[
    list[str] | None, typer.Argument(metavar="[TASK]...", help="The ids of the tasks.", show_default=False)
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="WHEN",
        show_default=False,
        help="Export all tasks that changed since a time, an age (7d), or a checkpoint (its number or file).",
    ),
]
OfAgent = Annotated[
    str, typer.Option("--agent", metavar="ID", show_default=False, help="With --since: only tasks of this agent.")
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the bundle; - for stdout.")]
Redact = Annotated[bool, typer.Option("--redact", help="Export digests instead of content.")]
MaxEvents = Annotated[int, typer.Option("--max-events", min=1, metavar="N", help="The most events.")]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, metavar="N", help="The most bytes, compressed.")]
MaxRatio = Annotated[
    int, typer.Option("--max-ratio", min=1, metavar="N", help="The most bytes that one compressed byte may expand to.")
]
Remote = Annotated[
    str,
    typer.Option("--url", metavar="URL", show_default=False, help="Ask a running host instead of opening the store."),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="ROOST_TOKEN",
        metavar="TOKEN",
        show_default=False,
        help="With --url: a token with the scope audit.",
    ),
]
Bundle = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `roost evidence export` wrote.")]
Trust = Annotated[
    Path | None, typer.Option("--trust", metavar="JWKS", help="The host's keys, from a source that you trust.")
]
Held = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="A checkpoint that you hold, with which the bundle must agree."),
]

EVENTS, SIZE, RATIO = 100_000, 100 << 20, 250


@with_settings(*STORE_AND_KEYS)
def export(
    tasks: Tasks = None,
    since: Since = "",
    agent: OfAgent = "",
    out: Out = Path("evidence.tar.gz"),
    redact: Redact = False,
    max_events: MaxEvents = EVENTS,
    url: Remote = "",
    token: Token = "",
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Write tasks, and everything on record about them, into a signed bundle.

    Reads the store itself, or with --url asks a running host, whose bundle also has its cards.
    """
    if bool(tasks) == bool(since):
        raise CommandFailed("name the tasks: their ids, or --since", USAGE)
    if tasks and agent:
        raise CommandFailed("--agent can be used with --since, but not with ids of tasks", USAGE)
    counts = None
    with _written(out) as file:
        if url:
            _fetch(url, token, list(tasks or ()), since, agent, redact, file)
        else:
            counts = _exported(flags, list(tasks or ()), since, agent, redact, max_events, file)
        file.flush()
        size = file.tell() if out != Path("-") else 0
    if as_json and out != Path("-"):
        json_line(encode({"file": str(out), "bytes": size, **({"counts": counts} if counts else {})}))
    elif out != Path("-"):
        content = f", {counts.tasks} tasks, {counts.events} events" if counts else ""
        print(f"{out} holds the bundle, {size:,} bytes{content}")
    if raised := _to_raise(size, counts):
        note(f"it is larger than `roost evidence verify` accepts by default: give it {' '.join(raised)}")


def verify(
    file: Bundle,
    trust: Trust = None,
    checkpoint: Held = None,
    max_events: MaxEvents = EVENTS,
    max_bytes: MaxBytes = SIZE,
    max_ratio: MaxRatio = RATIO,
    as_json: Json = False,
) -> None:
    """Check a bundle offline: structure, digests, links, roots and signature. Names what was changed.

    Exit code 0: valid. 1: not valid. 2: undecidable.
    """
    from roost.cli.evidence_checkpoints import read_held, read_trust
    from roost.evidence.bundle import BundleLimits
    from roost.evidence.verify import verify as judge
    from roost.evidence.verify_reader import BundleUnreadable

    keys = None if trust is None else read_trust(trust)
    held = None if checkpoint is None else read_held(checkpoint)
    try:
        verdict = judge(file, BundleLimits(max_bytes, max_events, max_ratio), keys, held)
    except BundleUnreadable as error:
        if as_json:
            json_line(encode({"outcome": "unjudged", "why": str(error)}))
            raise typer.Exit(UNJUDGED) from None
        raise CommandFailed(f"it cannot be judged: {error}", UNJUDGED) from None
    outcome = "invalid" if not verdict.valid else "unjudged" if verdict.unjudged else "valid"
    if as_json:
        why = {"why": verdict.unjudged} if outcome == "unjudged" else {}
        json_line(encode({"outcome": outcome, **why, **_plain(verdict)}))
    else:
        for line in _lines(verdict, trust is not None):
            print(one_line(line))
    raise typer.Exit({"valid": 0, "invalid": 1, "unjudged": UNJUDGED}[outcome])


def _plain(verdict: BundleVerdict) -> dict[str, object]:
    from msgspec import to_builtins

    plain: dict[str, object] = to_builtins(verdict)
    del plain["unjudged"]
    return plain


def _lines(verdict: BundleVerdict, trust: bool) -> Iterator[str]:
    for fault in verdict.faults:
        yield fault.text()
    if verdict.more:
        yield f"and {verdict.more} more"
    counts = verdict.counts
    yield f"{counts.tasks} tasks, {counts.events} events, {counts.tombstones} tombstones, {counts.proofs} proofs"
    if verdict.signed_by:
        anchor = "a key that you gave" if verdict.anchored else "not anchored"
        yield f"signed by {verdict.signed_by}, {anchor}"
    else:
        yield "no signature is valid"
    if verdict.checkpoint:
        proven = f"it or an earlier one proves {verdict.proven} of {counts.tasks} tasks, as they were then"
        yield f"agrees with checkpoint {verdict.checkpoint}, which you hold: {proven}"
    if verdict.redacted:
        yield "redacted: links cannot be computed without the content; order, digests and heads are as signed"
    if not verdict.valid:
        yield "not valid"
    elif verdict.unjudged:
        yield f"valid in itself, but it cannot be compared with your checkpoint: {verdict.unjudged}"
    else:
        yield "valid"


def _exported(
    flags: dict[str, Any], tasks: list[str], since: str, agent: str, redact: bool, most: int, file: IO[bytes]
) -> Any:
    from roost.cli.keys import keyring
    from roost.evidence.bundle import BundleLimits
    from roost.evidence.export import ExportTooLarge, Source, TaskChanged
    from roost.evidence.export import export as write
    from roost.evidence.export_selection import NothingFound
    from roost.identity.audit import AuditLog
    from roost.identity.keys import NoKey

    async def work(store: AdminStore, settings: Settings) -> Any:
        chosen = _selection(tasks, since, agent, redact)
        try:
            made = await write(Source(store, keyring(store, settings)), chosen, file, BundleLimits(events=most))
        except (NothingFound, ExportTooLarge, TaskChanged, NoKey) as error:
            raise CommandFailed(str(error)) from None
        await AuditLog(store).record(me(), "evidence.export", chosen.describe())
        return made.counts

    return with_store(flags, work)


def _to_raise(size: int, counts: Counts | None) -> list[str]:
    """The options that `verify` needs for a bundle of this size."""
    events = max(counts.events, counts.tombstones, counts.checkpoints) if counts else 0
    options = (("--max-bytes", size, SIZE), ("--max-events", events, EVENTS))
    return [f"{name} {found}" for name, found, most in options if found > most]


def _selection(tasks: list[str], since: str, agent: str, redact: bool) -> Selection:
    from roost.evidence.export_selection import Selection, parse_since
    from roost.identity.ports import now_ms

    if not since:
        return Selection(tuple(tasks), redact=redact)
    try:
        at, number, digest = parse_since(_meant(since), now_ms())
    except ValueError as error:
        raise CommandFailed(f"--since: {error}", USAGE) from None
    return Selection((), at, number, digest, agent, redact)


def _fetch(url: str, token: str, tasks: list[str], since: str, agent: str, redact: bool, file: IO[bytes]) -> None:
    from roost.cli.client import HostClient

    query = {"task": ",".join(tasks), "since": _meant(since), "agent": agent, "redact": "true" if redact else ""}
    HostClient(url, token).download(
        "/api/v2/admin/evidence", {name: value for name, value in query.items() if value}, file
    )


def _meant(since: str) -> str:
    """The argument of --since; for a file, the number and the digest of the checkpoint in it."""
    from roost.cli.evidence_checkpoints import read_held

    file = Path(since)
    if not since or not file.is_file():
        return since
    held = read_held(file)
    return f"{held.number}:{held.digest()}"


@contextmanager
def _written(out: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    if out == Path("-"):
        with tempfile.TemporaryFile() as spool:
            yield spool
            spool.seek(0)
            while piece := spool.read(1 << 20):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    if out.is_dir():
        raise CommandFailed(f"cannot write {out}: it is a directory")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    except OSError as error:
        raise CommandFailed(f"cannot write {out}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(out)
    finally:
        Path(name).unlink(missing_ok=True)
