"""The bar chart of a report, as SVG for light and dark backgrounds.

It shows what was measured both on Roost and on other servers. The line in a bar is the spread of the rounds.
"""

from __future__ import annotations

from html import escape

from benchmarks.bench import Series
from benchmarks.report import Report, figure
from benchmarks.stats import Spread

WIDTH, LABELS, BAR, GAP, HEAD = 720, 190, 18, 8, 34
ROOM = WIDTH - LABELS - 130
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .head { font-weight: 600 }
  .roost { fill: #2f7d4f } .other { fill: #8a94a0 }
  .spread { stroke: #1f2328; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .roost { fill: #4fb477 } .other { fill: #6e7883 }
    .spread { stroke: #e6edf3 }
  }
"""


def svg(report: Report) -> str:
    panels: dict[str, list[Series]] = {}
    for series in (series for series in report.series if series.drawn):
        panels.setdefault(series.measure, []).append(series)
    shapes: list[str] = []
    y = 0
    for measure, bars in panels.items():
        if {_ours(series) for series in bars} != {True, False}:
            continue
        unit = "per second, more is better" if bars[0].unit == "/s" else f"{bars[0].unit}, less is better"
        shapes.append(f'<text class="head" x="0" y="{y + 18}">{escape(measure)} ({unit})</text>')
        y += HEAD
        most = max(max(series.values) for series in bars)
        for series in bars:
            shapes += _bar(series, y, most)
            y += BAR + GAP
        y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img"'
        f' aria-label="Roost beside other servers">\n<style>{STYLE}</style>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _bar(series: Series, y: int, most: float) -> list[str]:
    spread = Spread.of(series.values)
    low, middle, high = (max(1.0, value / most * ROOM) for value in spread)
    kind = "roost" if _ours(series) else "other"
    center = y + BAR / 2
    return [
        f'<text x="{LABELS - 8}" y="{y + 14}" text-anchor="end">{escape(series.subject)}</text>',
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{middle:.1f}" height="{BAR}" rx="2"/>',
        f'<line class="spread" x1="{LABELS + low:.1f}" x2="{LABELS + high:.1f}" y1="{center}" y2="{center}"/>',
        f'<text x="{LABELS + high + 8:.1f}" y="{y + 14}">{figure(spread.middle)}</text>',
    ]


def _ours(series: Series) -> bool:
    return series.subject.startswith("Roost")
