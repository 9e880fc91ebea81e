"""`roost evidence convert`: converts documents and packets to events, one JSON line each."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from roost.cli.errors import ERROR, USAGE, CommandFailed
from roost.cli.output import json_line
from roost.protocol.codec import encode

if TYPE_CHECKING:
    from roost.identity.card_verification import Jwk

STDIN = "-"
BLANK = b" \t\r\n"
MEDIA_TYPE = "application/json"
LINES = (".ndjson", ".jsonl")
LARGEST = 100 * 1024 * 1024
"""The most bytes of a packet that the command reads where no limit is given."""

Convert = Callable[[bytes], bytes]


class EvidenceProfile(enum.StrEnum):
    V1 = "v1"
    V2 = "v2"


Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Files with JSON documents; - is stdin.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Fill in what is missing, and report it.")]
Which = Annotated[
    EvidenceProfile,
    typer.Option("--profile", help="v1 is for packets of Assay's adapter, v2 for documents of A2A 0.3 and 1.0."),
]
InLines = Annotated[
    bool, typer.Option("--lines", help="Read one document per line, as is always done with .ndjson and .jsonl files.")
]
Hint = Annotated[
    str,
    typer.Option(
        "--a2a-version",
        metavar="VERSION",
        show_default=False,
        help="The version of A2A, where the input does not name it.",
    ),
]
MediaType = Annotated[str, typer.Option("--media-type", help="The media type of the input, which the events repeat.")]
Jwks = Annotated[
    Path | None, typer.Option("--jwks", metavar="FILE", help="Keys to check the signatures of cards with (v2).")
]
KeepIn = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Keep the raw bytes of all input in this folder, by digest."),
]


def _limit(name: str, what: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(name, min=1, metavar="N", show_default=False, help=what)
    return found


MaxBytes = Annotated[int | None, _limit("--max-bytes", "The most bytes of all input together (v2: 104857600).")]
MaxEvents = Annotated[int | None, _limit("--max-events", "The most events (v2: 100000).")]
MaxPayload = Annotated[
    int | None, _limit("--max-payload-bytes", "The most bytes of one document (v1: 104857600, v2: 1048576).")
]
MaxDepth = Annotated[int | None, _limit("--max-json-depth", "The deepest nesting (v1: unlimited, v2: 64).")]
MaxArray = Annotated[int | None, _limit("--max-array-length", "The longest array (v1: unlimited, v2: 10000).")]


def convert(
    files: Files,
    lenient: Lenient = False,
    profile: Which = EvidenceProfile.V1,
    lines: InLines = False,
    a2a_version: Hint = "",
    media_type: MediaType = MEDIA_TYPE,
    jwks: Jwks = None,
    keep: KeepIn = None,
    max_bytes: MaxBytes = None,
    max_events: MaxEvents = None,
    max_payload_bytes: MaxPayload = None,
    max_json_depth: MaxDepth = None,
    max_array_length: MaxArray = None,
) -> None:
    """Convert documents to events that record what was visible in them, one JSON line each on stdout.

    Exit code 0: all were converted. 1: some were refused, and their lines say why. 2: wrong usage, or a file could
    not be read or kept.
    """
    given = {
        "max_bytes": max_bytes,
        "max_events": max_events,
        "max_payload_bytes": max_payload_bytes,
        "max_json_depth": max_json_depth,
        "max_array_length": max_array_length,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    make = _packets if profile is EvidenceProfile.V1 else _documents
    one, longest = make(lenient, a2a_version or None, media_type, jwks, keep, limits)
    code = 0
    for file in files:
        for number, payload in _payloads(file, lines or file.endswith(LINES), longest):
            code = max(code, _converted(one, payload, file, number))
    raise typer.Exit(code)


def _converted(one: Convert, payload: bytes, file: str, number: int | None) -> int:
    from roost.evidence.errors import ErrorKind, EvidenceError, InputLimitReached

    try:
        json_line(one(payload))
    except EvidenceError as error:
        where = {"input": file} if number is None else {"input": file, "line": number}
        json_line(encode({"error": error.plain(), **where}))
        if isinstance(error, InputLimitReached):
            raise typer.Exit(ERROR) from None
        return USAGE if error.kind is ErrorKind.INFRASTRUCTURE else ERROR
    return 0


def _packets(
    lenient: bool,
    version: str | None,
    media_type: str,
    jwks: Path | None,
    keep: Path | None,
    given: dict[str, int],
) -> tuple[Convert, int]:
    from roost.evidence import adapter
    from roost.evidence.adapter_fields import compact
    from roost.evidence.raw import RawStore, raw_of

    if jwks is not None or "max_bytes" in given or "max_events" in given:
        raise CommandFailed("--jwks, --max-bytes and --max-events are for --profile v2", USAGE)
    longest = given.setdefault("max_payload_bytes", LARGEST)
    mode = adapter.Mode.LENIENT if lenient else adapter.Mode.STRICT
    options = adapter.AdapterOptions(mode=mode, **given)
    keeps = RawStore(keep).keep if keep else raw_of
    return lambda payload: compact(adapter.convert(payload, media_type, version, options, keeps).plain()), longest


def _documents(
    lenient: bool,
    version: str | None,
    media_type: str,
    jwks: Path | None,
    keep: Path | None,
    given: dict[str, int],
) -> tuple[Convert, int]:
    from roost.evidence.adapter import Mode
    from roost.evidence.errors import EvidenceError
    from roost.evidence.raw import RawStore, raw_of
    from roost.evidence.wire import TrafficConverter, TrafficLimits

    limits = TrafficLimits(**given)
    try:
        converter = TrafficConverter(
            mode=Mode.LENIENT if lenient else Mode.STRICT,
            version=version,
            keys=_keys(jwks) if jwks else (),
            limits=limits,
            keep=RawStore(keep).keep if keep else raw_of,
        )
    except EvidenceError as error:
        raise CommandFailed(f"--a2a-version: {error.message}", USAGE) from None
    return lambda payload: converter.convert(payload, media_type).line(), limits.max_payload_bytes


def _payloads(file: str, in_lines: bool, longest: int) -> Iterator[tuple[int | None, bytes]]:
    """Each document, with its line number if there is one per line. One byte too many is read, to notice the excess."""
    with _opened(file) as stream:
        if not in_lines:
            yield None, stream.read(longest + 1)
            return
        number = 0
        while line := stream.readline(longest + 2):
            number += 1
            yield from ((number, document) for document in (line.strip(BLANK),) if document)
            while not line.endswith(b"\n") and (line := stream.readline(longest)):
                continue  # the rest of a line that is too long


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    try:
        if file == STDIN:
            yield sys.stdin.buffer
        else:
            with Path(file).open("rb") as stream:
                yield stream
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", USAGE) from None


def _keys(file: Path) -> list[Jwk]:
    from roost.identity.card_verification import Unverifiable, read_jwks

    try:
        return read_jwks(file.read_bytes())
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", USAGE) from None
    except Unverifiable as error:
        raise CommandFailed(f"{file}: {error}", USAGE) from None
