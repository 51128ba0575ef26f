"""Bars as SVG: one picture for each figure, small enough to be read as text."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABEL, RIGHT, ROW, TOP = 720, 170, 100, 26, 46
COLOURS = {"outlast": "#0a7d5a", "bare": "#9a9a9a", "durable": "#3b6fb6", "less": "#c7d6ea"}
LEGEND = {"outlast": "Outlast", "bare": "bare database", "durable": "peer, as durable",
          "less": "peer, less durable"}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    label: str
    kind: str  # one of COLOURS
    median: float
    low: float
    high: float
    text: str


def bars(title: str, unit: str, found: list[Bar]) -> str:
    """The longest bar is as wide as there is room; a thin line shows the spread."""
    most = max(bar.high for bar in found) or 1.0
    room = WIDTH - LABEL - RIGHT
    height = TOP + ROW * len(found) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fff"/>',
        f'<text x="12" y="26" font-size="15" font-weight="600">{escape(title)}, {escape(unit)}'
        "</text>",
    ]
    for place, bar in enumerate(found):
        lines += _bar(bar, TOP + ROW * place, room / most)
    return "\n".join([*lines, *_legend(found, height - 10), "</svg>"]) + "\n"


def _bar(bar: Bar, top: int, scale: float) -> list[str]:
    middle = top + ROW // 2 - 2
    low, high = LABEL + bar.low * scale, LABEL + bar.high * scale
    return [
        f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{LABEL}" y="{top}" width="{max(bar.median * scale, 1):.1f}" height="{ROW - 6}"'
        f' fill="{COLOURS[bar.kind]}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#222" stroke-opacity=".55"/>',
        f'<text x="{max(high, LABEL + bar.median * scale) + 8:.1f}" y="{middle + 4}">'
        f"{escape(bar.text)}</text>",
    ]


def _legend(found: list[Bar], y: int) -> list[str]:
    lines, x = [], 12
    for kind in (kind for kind in COLOURS if any(bar.kind == kind for bar in found)):
        lines.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 16}" y="{y}" font-size="12">{LEGEND[kind]}</text>')
        x += 36 + 7 * len(LEGEND[kind])
    return lines
