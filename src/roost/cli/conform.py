"""`roost conform`: judges any A2A host."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.errors import Failed
from roost.cli.options import Json
from roost.cli.output import note, one_line, plain, table

if TYPE_CHECKING:
    from roost.conform.outcome import ConformReport, Result
    from roost.conform.target import ConformOptions

CANNOT_JUDGE = 2

Where = Annotated[str, typer.Argument(metavar="[URL]", show_default=False, help="Of a host, an agent, or a card.")]
ExecutorUrl = Annotated[
    str, typer.Option("--executor-url", metavar="URL", show_default=False, help="The same as the argument.")
]
Token = Annotated[
    str,
    typer.Option("--token", envvar="ROOST_TOKEN", metavar="TOKEN", show_default=False, help="Sent as a bearer token."),
]
TokenB = Annotated[
    str,
    typer.Option(
        "--token-b",
        envvar="ROOST_TOKEN_B",
        metavar="TOKEN",
        show_default=False,
        help="Of somebody else, who must not see what the first one does.",
    ),
]
Format = Annotated[
    str,
    typer.Option("--report-format", metavar="LIST", show_default=False, help="markdown, junit, json, html."),
]
Out = Annotated[
    str,
    typer.Option(
        "--report-out",
        metavar="PATH",
        show_default=False,
        help="A folder (PATH/, or for several reports), or a file name without its ending.",
    ),
]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="PATTERN", help="Only these checks; repeatable.")]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="PATTERN", help="Not these checks; repeatable.")]
Level = Annotated[
    str,
    typer.Option(
        "--level", metavar="must|should|beyond", help="Leave out what is only recommended (must), or not said (should)."
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="For each request.")]
Profile = Annotated[
    str,
    typer.Option(
        "--profile", metavar="plain|tck", show_default=False, help="What the agent does; the card tells by default."
    ),
]
AgentHints = Annotated[
    str,
    typer.Option(
        "--agent-hints",
        metavar="FILE_OR_JSON",
        show_default=False,
        help="Which messages make the agent pause, work for long, and so on.",
    ),
]
Receiver = Annotated[
    str,
    typer.Option(
        "--receiver",
        metavar="HOST[:PORT]",
        show_default=False,
        help="Of this machine, where the host can reach a webhook; 127.0.0.1 for a host on this machine.",
    ),
]
TenantId = Annotated[
    str,
    typer.Option("--tenant-id", metavar="TENANT", show_default=False, help="In every message: whose tasks are made."),
]
AnyHost = Annotated[
    bool,
    typer.Option("--any-host", help="Call interfaces on other hosts than the card's, or without TLS, with the token."),
]
Restart = Annotated[
    str,
    typer.Option(
        "--restart", metavar="COMMAND", show_default=False, help="Crashes the host and starts it again, on its data."
    ),
]
List = Annotated[bool, typer.Option("--list", help="Show all checks and their sections, and judge nobody.")]


def conform(
    url: Where = "",
    executor_url: ExecutorUrl = "",
    token: Token = "",
    token_b: TokenB = "",
    report_format: Format = "",
    report_out: Out = "",
    only: Only = None,
    skip: Skip = None,
    level: Level = "beyond",
    timeout: Timeout = 10.0,
    profile: Profile = "",
    agent_hints: AgentHints = "",
    receiver: Receiver = "",
    tenant_id: TenantId = "",
    any_host: AnyHost = False,
    restart: Restart = "",
    show: List = False,
    as_json: Json = False,
) -> None:
    """Judge any A2A host: its card, every operation on every binding, errors, streams, push, access.

    Exit code 0: all that was judged holds. 1: something does not. 2: it cannot be judged.
    """
    from roost.conform.reports import FORMATS
    from roost.conform.restart import restarting
    from roost.conform.runner import PATIENCE
    from roost.conform.target import ConformOptions

    _check_choices(level, profile)
    formats = [name.strip() for name in report_format.split(",") if name.strip()]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise Failed(f"{unknown[0]!r} is no format of a report: there are {', '.join(FORMATS)}", CANNOT_JUDGE)
    if as_json and not report_out:
        formats = [name for name in formats if name != "json"]
    if len(formats) + as_json > 1 and not report_out:
        raise Failed("several reports need a place: give --report-out", CANNOT_JUDGE)
    if show:
        _list(only or [], skip or [], level)
        return
    where = url or executor_url
    if not where:
        raise Failed("whom should it judge? Give the URL of a host, an agent, or a card", CANNOT_JUDGE)
    options = ConformOptions(
        where,
        token=_secret(token),
        token_b=_secret(token_b),
        profile=profile,
        hints=None,
        timeout=timeout,
        receiver=receiver,
        tenant_id=tenant_id,
        any_host=any_host,
        only=only or [],
        skip=skip or [],
        level=level.upper(),
        restart=restarting(restart, where, timeout * PATIENCE) if restart else None,
    )
    report = _judged(options, agent_hints, quiet=as_json or (bool(formats) and not report_out))
    _write(report, formats or (["markdown"] if report_out else []), report_out)
    if as_json:
        print(FORMATS["json"][1](report), end="")
    raise typer.Exit(report.code)


def _check_choices(level: str, profile: str) -> None:
    from roost.conform.hints import PROFILES

    if level not in ("must", "should", "beyond"):
        raise Failed("--level is must, should or beyond", CANNOT_JUDGE)
    if profile and profile not in PROFILES:
        raise Failed(f"--profile is one of {', '.join(PROFILES)}", CANNOT_JUDGE)


def _secret(token: str) -> str:
    token = token.strip()
    if not all("!" <= character <= "~" for character in token):
        raise Failed("the token has characters that a header cannot carry; was it copied whole?", CANNOT_JUDGE)
    return token


def _judged(options: ConformOptions, agent_hints: str, *, quiet: bool) -> ConformReport:
    from roost.conform.hints import read_hints
    from roost.conform.outcome import NotJudged
    from roost.conform.reports import summary
    from roost.conform.runner import judge

    try:
        if agent_hints:
            written = agent_hints.lstrip().startswith("{")
            options.hints = read_hints(agent_hints if written else Path(agent_hints).read_bytes())
        with _Progress(quiet) as progress:
            report = asyncio.run(judge(options, progress.tell))
    except NotJudged as error:
        raise Failed(str(error), CANNOT_JUDGE) from None
    except OSError as error:
        raise Failed(f"cannot read {agent_hints}: {error.strerror}", CANNOT_JUDGE) from None
    if not quiet:
        for text in report.notes:
            note(text)
        print(f"{one_line(report.agent)} at {one_line(report.url)}: {summary(report)}")
    return report


class _Progress:
    """On a terminal a bar, and only what is not well above it; otherwise a line for each check."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.quiet = quiet
        self.bar = None if quiet or not sys.stderr.isatty() else Progress(console=Console(stderr=True), transient=True)
        self.task = None if self.bar is None else self.bar.add_task("Judging", total=None)

    def __enter__(self) -> _Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def tell(self, result: Result, done: int, of: int) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=of, description=result.id)
            if result.outcome in ("passed", "skipped"):
                return
        if not self.quiet:
            for line in _lines(result):
                print(line, flush=True)


def _lines(result: Result) -> list[str]:
    said = f": {one_line(result.reason)}" if result.reason else ""
    lines = [f"{result.outcome:8}{result.name} (section {result.section}) {result.title}{said}"]
    if result.expected:
        lines += [
            f"        expected: {one_line(result.expected)}",
            f"        observed: {one_line(result.observed)[:500]}",
        ]
    return lines


def _write(report: ConformReport, formats: list[str], out: str) -> None:
    from roost.conform.reports import FORMATS

    place = Path(out)
    folder = out.endswith("/") or len(formats) > 1 or place.is_dir()
    for name in formats:
        ending, write = FORMATS[name]
        text = write(report)
        if not out:
            print(plain(text) if name == "markdown" else text, end="")
            continue
        file = place / f"conform{ending}" if folder else place.with_name(place.name.removesuffix(ending) + ending)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Failed(f"cannot write {file}: {error.strerror}", CANNOT_JUDGE) from None
        note(f"{name}: {file}")


def _list(only: list[str], skip: list[str], level: str) -> None:
    from roost.conform.check import every

    rows = [
        (one.id, ", ".join(one.bindings) or "once", one.level, one.section, one.title)
        for one in every(only, skip, level.upper())
    ]
    table(("check", "bindings", "level", "section", "what it wants"), rows)
