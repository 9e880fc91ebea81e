"""`roost conform`: tests whether an A2A host conforms to the specification."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import escaped, note, one_line, plain, references, table

if TYPE_CHECKING:
    from roost.conform.hints import Hints
    from roost.conform.outcome import ConformReport, Result
    from roost.conform.target import ConformOptions

CANNOT_JUDGE = 2
"""Exit code for wrong usage and for a host that cannot be judged."""
PRINTED = {"markdown": plain, "junit": references, "json": escaped, "html": references}
"""Functions that make a report safe to print, by the name of its format."""
LEVEL_NAMES = ("must", "should", "beyond")

Where = Annotated[
    str, typer.Argument(metavar="[URL]", show_default=False, help="The URL of a host, an agent or a card.")
]
ExecutorUrl = Annotated[
    str, typer.Option("--executor-url", metavar="URL", show_default=False, help="The same as the argument URL.")
]
Token = Annotated[
    str,
    typer.Option("--token", envvar="ROOST_TOKEN", metavar="TOKEN", show_default=False, help="The bearer token."),
]
TokenB = Annotated[
    str,
    typer.Option(
        "--token-b",
        envvar="ROOST_TOKEN_B",
        metavar="TOKEN",
        show_default=False,
        help="The bearer token of a second caller, who must not see the tasks of the first.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--report-format",
        metavar="LIST",
        show_default=False,
        help="Which reports to write, separated by commas: markdown, junit, json, html.",
    ),
]
Out = Annotated[
    str,
    typer.Option(
        "--report-out",
        metavar="PATH",
        show_default=False,
        help="Where to write the reports: a file (x.md), or a folder (reports/).",
    ),
]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="PATTERN", help="Run only these checks; repeatable.")]
Skip = Annotated[
    list[str] | None, typer.Option("--skip", metavar="PATTERN", help="Leave out these checks; repeatable.")
]
Level = Annotated[
    str,
    typer.Option(
        "--level",
        metavar="must|should|beyond",
        help="Run only what the specification requires (must), or what it requires and recommends (should).",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="The time limit of a request.")]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="plain|tck",
        show_default=False,
        help="How the agent behaves; by default it is taken from the card.",
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
        help="An address of this machine at which the host can reach a webhook; 127.0.0.1 if the host runs here.",
    ),
]
TenantId = Annotated[
    str,
    typer.Option("--tenant-id", metavar="TENANT", show_default=False, help="The tenant that every message names."),
]
AnyHost = Annotated[
    bool,
    typer.Option(
        "--any-host", help="Also call interfaces on other hosts than the card's, or without TLS; they get the token."
    ),
]
Restart = Annotated[
    str,
    typer.Option(
        "--restart",
        metavar="COMMAND",
        show_default=False,
        help="A command that crashes the host and starts it again on its data.",
    ),
]
List = Annotated[bool, typer.Option("--list", help="List the checks and their sections, and run none.")]


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
    """Test any A2A host: its card, every operation on every binding, errors, streams, push, access.

    Exit code 0: every check that ran passed. 1: a check failed. 2: the host cannot be judged.
    """
    from roost.conform.reports import as_json as json_report
    from roost.conform.restart import restarting
    from roost.conform.runner import PATIENCE
    from roost.conform.target import ConformOptions

    _check_choices(level, profile)
    formats = _formats(report_format, report_out, as_json)
    files = _files(formats, report_out) if report_out else {}
    if show:
        _list(only or [], skip or [], level)
        return
    where = url or executor_url
    if not where:
        raise CommandFailed("no URL was given: name a host, an agent or a card", CANNOT_JUDGE)
    options = ConformOptions(
        where,
        token=_secret(token),
        token_b=_secret(token_b),
        profile=profile,
        hints=_hints(agent_hints),
        timeout=timeout,
        receiver=receiver,
        tenant_id=tenant_id,
        any_host=any_host,
        only=only or [],
        skip=skip or [],
        level=level.upper(),
        restart=restarting(restart, where, timeout * PATIENCE) if restart else None,
    )
    report = _judged(options, quiet=as_json or (bool(formats) and not report_out))
    _write(report, formats, files)
    if as_json:
        print(escaped(json_report(report)), end="")
    raise typer.Exit(report.code)


def _check_choices(level: str, profile: str) -> None:
    from roost.conform.hints import PROFILES

    if level not in LEVEL_NAMES:
        raise CommandFailed(f"unknown --level {level!r}: use {', '.join(LEVEL_NAMES)}", CANNOT_JUDGE)
    if profile and profile not in PROFILES:
        raise CommandFailed(f"unknown --profile {profile!r}: use {', '.join(PROFILES)}", CANNOT_JUDGE)


def _formats(names: str, out: str, as_json: bool) -> list[str]:
    """The reports to write. Without --report-format the ending of --report-out decides, and Markdown is the default."""
    from roost.conform.reports import FORMATS

    formats = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise CommandFailed(f"unknown report format {unknown[0]!r}: use {', '.join(FORMATS)}", CANNOT_JUDGE)
    if out:
        return formats or [_named(out) or "markdown"]
    if as_json:
        formats = [name for name in formats if name != "json"]
    if len(formats) + as_json > 1:
        raise CommandFailed("several reports cannot all go to stdout: give --report-out", CANNOT_JUDGE)
    return formats


def _named(out: str) -> str | None:
    """The format that the ending of a file name stands for."""
    from roost.conform.reports import FORMATS

    return next((name for name, (ending, _) in FORMATS.items() if Path(out).suffix == ending), None)


def _files(formats: list[str], out: str) -> dict[str, Path]:
    """The file of each report.

    PATH is a folder if it ends with a slash or is one already. It is also a folder if there are several reports and its
    name does not end as one of them does. Otherwise it is a file name: a report of another format goes beside it, under
    the same name with its own ending.
    """
    from roost.conform.reports import FORMATS

    place, named = Path(out), _named(out)
    if out.endswith("/") or place.is_dir() or (named is None and len(formats) > 1):
        return {name: place / f"conform{FORMATS[name][0]}" for name in formats}
    if named is not None and named not in formats:
        asked = ", ".join(formats)
        problem = f"{out} names a {named} report, but --report-format asks for {asked}"
        raise CommandFailed(f"{problem}: give --report-out another ending, or a folder as {out}/", CANNOT_JUDGE)
    stem = place.name if named is None else place.stem
    return {name: place.with_name(stem + FORMATS[name][0]) for name in formats}


def _secret(token: str) -> str:
    token = token.strip()
    if not all("!" <= character <= "~" for character in token):
        raise CommandFailed(
            "the token has characters that an HTTP header cannot carry: was it copied whole?", CANNOT_JUDGE
        )
    return token


def _hints(given: str) -> Hints | None:
    from roost.conform.hints import read_hints
    from roost.conform.outcome import NotJudged

    if not given:
        return None
    try:
        return read_hints(given if given.lstrip().startswith("{") else Path(given).read_bytes())
    except NotJudged as error:
        raise CommandFailed(f"--agent-hints: {error}", CANNOT_JUDGE) from None
    except OSError as error:
        raise CommandFailed(f"--agent-hints: cannot read {given}: {error.strerror}", CANNOT_JUDGE) from None


def _judged(options: ConformOptions, *, quiet: bool) -> ConformReport:
    from roost.conform.outcome import NotJudged
    from roost.conform.reports import summary
    from roost.conform.runner import judge

    try:
        with _Progress(quiet) as progress:
            report = asyncio.run(judge(options, progress.show))
    except NotJudged as error:
        raise CommandFailed(str(error), CANNOT_JUDGE) from None
    if not quiet:
        for text in report.notes:
            note(text)
        print(f"{one_line(report.agent)} at {one_line(report.url)}: {summary(report)}")
    return report


class _Progress:
    """Shows a progress bar on a terminal, below the checks that failed; otherwise one line for each check."""

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

    def show(self, result: Result, done: int, of: int) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=of, description=result.id)
            if result.outcome in ("passed", "skipped"):
                return
        if not self.quiet:
            for line in _lines(result):
                print(line, flush=True)


def _lines(result: Result) -> list[str]:
    reason = f": {one_line(result.reason)}" if result.reason else ""
    lines = [f"{result.outcome:8}{result.name} (section {result.section}) {result.title}{reason}"]
    if result.expected:
        lines += [
            f"        expected: {one_line(result.expected)}",
            f"        observed: {one_line(result.observed)[:500]}",
        ]
    return lines


def _write(report: ConformReport, formats: list[str], files: dict[str, Path]) -> None:
    from roost.conform.reports import FORMATS

    for name in formats:
        text = FORMATS[name][1](report)
        if name not in files:
            print(PRINTED[name](text), end="")
            continue
        try:
            files[name].parent.mkdir(parents=True, exist_ok=True)
            files[name].write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"cannot write {files[name]}: {error.strerror}", CANNOT_JUDGE) from None
        note(f"{name}: {files[name]}")


def _list(only: list[str], skip: list[str], level: str) -> None:
    from roost.conform.check import every

    rows = [
        (one.id, ", ".join(one.bindings) or "once", one.level, one.section, one.title)
        for one in every(only, skip, level.upper())
    ]
    table(("check", "bindings", "level", "section", "what it requires"), rows)
