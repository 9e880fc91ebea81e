"""`roost card verify`: checks the signatures of a card, and who made them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.options import Json
from roost.cli.output import json_line, note, one_line
from roost.protocol.codec import encode

if TYPE_CHECKING:
    from roost.cli.judge import CardReport
    from roost.identity.card_verification import SignatureVerdict

OUTCOMES = ("valid", "invalid", "unjudged")
"""The outcome for each exit code."""

Card = Annotated[str, typer.Argument(metavar="URL", help="The URL of a card, or of a host or an agent that has one.")]
Keys = Annotated[
    str,
    typer.Option(
        "--jwks",
        metavar="FILE_OR_URL",
        show_default=False,
        help="The public keys. By default, where the card says, if that is on the card's own origin.",
    ),
]
Trust = Annotated[
    list[Path] | None, typer.Option("--trust", metavar="FILE", help="Keys that you trust (JWKS). Repeatable.")
]
TrustThumbprint = Annotated[
    list[str] | None,
    typer.Option("--trust-thumbprint", metavar="SHA256", help="A key that you trust (RFC 7638). Repeatable."),
]


Whole = Annotated[
    bool,
    typer.Option("--whole", help="Exit with 1 also if the signatures do not prove that the card is complete."),
]


def verify(
    url: Card,
    jwks: Keys = "",
    trust: Trust = None,
    trust_thumbprint: TrustThumbprint = None,
    whole: Whole = False,
    as_json: Json = False,
) -> None:
    """Verify the signatures of a card, and whether keys that you trust made them.

    Exit code 0: valid, and made by a trusted key if you named any. 1: not valid. 2: undecidable.
    """
    from roost.cli.judge import judge  # it imports cryptography, which --help does not need

    report = judge(url, jwks, trust or [], trust_thumbprint or [])._replace(whole=whole)
    code, conclusion = report.conclusion()
    if as_json:
        signatures = [_described(report, verdict) for verdict in report.verdicts]
        outcome = {"outcome": OUTCOMES[code], "conclusion": conclusion, "notes": report.notes}
        parts = {"uncovered": report.uncovered(), "whole": report.is_whole()}
        json_line(encode({"url": report.url, **outcome, **parts, "signatures": signatures}))
    else:
        for line in _lines(report):
            print(line)
        for text in report.notes:
            note(text)
        print(one_line(conclusion))
    raise typer.Exit(code)


def _described(report: CardReport, verdict: SignatureVerdict) -> dict[str, object]:
    return {**verdict._asdict(), "valid": verdict.valid, "anchored": report.anchored(verdict)}


def _lines(report: CardReport) -> Iterator[str]:
    yield _line("Card", f"{report.card.get('name', '')} {report.card.get('version', '')}")
    yield ""
    for verdict in report.verdicts:
        yield _line("Signature", f"{verdict.alg or 'unknown'}, by the key {verdict.kid or 'without a name'}")
        if verdict.valid:
            yield _line("Covers", _coverage(verdict))
            yield _line("Thumbprint", verdict.thumbprint)
        yield _line("Valid", "yes" if verdict.valid else f"no ({verdict.why})")
        yield _line("Anchored", _anchor(report, verdict))
        yield ""


def _coverage(verdict: SignatureVerdict) -> str:
    if verdict.covers == "document":
        return "the whole card"
    return f"what A2A defines, but not {', '.join(verdict.uncovered)}"


def _anchor(report: CardReport, verdict: SignatureVerdict) -> str:
    if report.anchored(verdict):
        return "yes"
    if not verdict.valid:
        return "no (the signature is not valid)"
    return "no (you do not trust its key)" if report.trusted else "no (you named no key that you trust)"


def _line(title: str, text: str) -> str:
    return f"{title:14}{one_line(text)}"
