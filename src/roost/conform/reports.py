"""Reports as Markdown, as JUnit XML, as JSON, and as one HTML page without other files."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from html import escape

import msgspec

from roost.conform.outcome import ConformReport, Outcome, Result

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FENCE = "````"
OUTCOMES = (Outcome.FAILED, Outcome.ERROR, Outcome.PASSED, Outcome.SKIPPED)


def summary(report: ConformReport) -> str:
    return ", ".join(f"{report.count(outcome)} {outcome}" for outcome in OUTCOMES)


def as_json(report: ConformReport) -> str:
    found = msgspec.to_builtins(report)
    counts = {str(outcome): report.count(outcome) for outcome in OUTCOMES}
    return json.dumps({"exitCode": report.code, "counts": counts, **found}, indent=2, ensure_ascii=False) + "\n"


def as_markdown(report: ConformReport) -> str:
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: ConformReport) -> Iterator[str]:
    yield f"# Conformance of {_cell(report.agent) or 'an agent'}"
    yield ""
    yield f"{_cell(report.url)}, over {', '.join(report.bindings)}, profile {report.profile}: {summary(report)}."
    for note in report.notes:
        yield f"\n{_cell(note)}."
    for outcome, title in ((Outcome.FAILED, "Failed"), (Outcome.ERROR, "Could not be judged")):
        found = report.of(outcome)
        if found:
            yield f"\n## {title}\n"
        for result in found:
            yield from _markdown_failure(result)
    yield "\n## All checks\n"
    yield "| check | binding | | section | |"
    yield "|---|---|---|---|---|"
    for result in report.results:
        said = f"{result.title}: {result.reason}" if result.reason else result.title
        row = (result.id, result.binding, str(result.outcome), result.section, said)
        yield f"| {' | '.join(map(_cell, row))} |"


def _markdown_failure(result: Result) -> Iterator[str]:
    yield f"### {_cell(result.name)}: {_cell(result.title)}\n"
    yield f"{result.level}, surface {result.surface}, section {_cell(result.section)} of the specification.\n"
    if result.reason:
        yield f"{_cell(result.reason)}\n"
        return
    yield f"Expected: {_cell(result.expected)}\n"
    yield f"Observed:\n\n{_FENCE}\n{result.observed.replace('`', chr(39))}\n{_FENCE}\n"


def _cell(text: str) -> str:
    """Escape a text for one line of Markdown, so that it makes no table, heading or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def as_junit(report: ConformReport) -> str:
    counts = {"failures": report.count(Outcome.FAILED), "errors": report.count(Outcome.ERROR)}
    counts |= {"tests": len(report.results), "skipped": report.count(Outcome.SKIPPED)}
    took = f"{sum(result.seconds for result in report.results):.3f}"
    suite = ElementTree.Element(
        "testsuite",
        {"name": _xml(f"roost conform {report.url}"), "time": took, **{k: str(v) for k, v in counts.items()}},
    )
    for result in report.results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"conform.{result.surface}", "name": result.name, "time": f"{result.seconds:.3f}"},
        )
        text = f"{result.title}\nsection: {result.section}\nexpected: {result.expected}\nobserved: {result.observed}"
        if result.outcome is Outcome.FAILED:
            ElementTree.SubElement(case, "failure", {"message": _xml(result.expected)}).text = _xml(text)
        elif result.outcome is Outcome.ERROR:
            ElementTree.SubElement(case, "error", {"message": _xml(result.reason)})
        elif result.outcome is Outcome.SKIPPED:
            ElementTree.SubElement(case, "skipped", {"message": _xml(result.reason)})
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .2rem .6rem; vertical-align: top; }
tr { border-top: 1px solid #ddd; } pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; white-space: pre-wrap; }
.passed { color: #176b2c; } .failed { color: #b3171d; font-weight: bold; } .error { color: #9a5b00; font-weight: bold; }
.skipped { color: #666; }
"""


def as_html(report: ConformReport) -> str:
    """Escape everything that came from the host. The page has no script, and its policy allows none."""
    return "\n".join(_html(report)) + "\n"


def _html(report: ConformReport) -> Iterator[str]:
    agent = escape(report.agent or "an agent")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>Conformance of {agent}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>Conformance of {agent}</h1>"
    bindings = escape(", ".join(report.bindings))
    yield f"<p>{escape(report.url)}, over {bindings}, profile {escape(report.profile)}: {summary(report)}.</p>"
    for note in report.notes:
        yield f"<p>{escape(note)}.</p>"
    for result in (*report.of(Outcome.FAILED), *report.of(Outcome.ERROR)):
        yield f'<h3 class="{result.outcome}">{escape(result.name)}: {escape(result.title)}</h3>'
        yield f"<p>{result.level}, surface {result.surface}, section {escape(result.section)} of the specification.</p>"
        if result.reason:
            yield f"<p>{escape(result.reason)}</p>"
        else:
            yield f"<p>Expected: {escape(result.expected)}</p>\n<pre>{escape(result.observed)}</pre>"
    yield "<table>\n<tr><th>check</th><th>binding</th><th></th><th>section</th><th></th></tr>"
    for result in report.results:
        said = f"{result.title}: {result.reason}" if result.reason else result.title
        cells = "".join(f"<td>{escape(text)}</td>" for text in (result.id, result.binding))
        verdict = f'<td class="{result.outcome}">{result.outcome}</td>'
        yield f"<tr>{cells}{verdict}<td>{escape(result.section)}</td><td>{escape(said)}</td></tr>"
    yield "</table>\n</body>\n</html>"


FORMATS: dict[str, tuple[str, Callable[[ConformReport], str]]] = {
    "markdown": (".md", as_markdown),
    "junit": (".xml", as_junit),
    "json": (".json", as_json),
    "html": (".html", as_html),
}
"""The ending of the file and the function that writes it, by the name of the format."""
