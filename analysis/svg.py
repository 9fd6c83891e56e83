"""Plain SVG scatter plots without a dependency: axes, ticks, points with a tooltip each, medians, a legend.

A plot is one file that needs no network and no script. Series differ by colour and by shape (the Okabe-Ito colours,
told apart with any colour vision); text is escaped; colours follow the reader's light or dark setting.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
SHAPES = ("circle", "square", "triangle", "diamond")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.axis{stroke:#555}"
    ".grid{stroke:#ddd}.note{font-size:11px;fill:#555}rect.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.note{fill:#aaa}.axis{stroke:#aaa}.grid{stroke:#444}"
    "rect.page{fill:#1b1b1b}}"
)
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 64, 66


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points (x, y, tooltip), and horizontal marks (from x, to x, y, tooltip), of one name."""

    name: str
    points: Sequence[tuple[float, float, str]]
    marks: Sequence[tuple[float, float, float, str]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """What to draw. ``x_labels`` replace the numbers of the x axis: (x, text). ``log_y`` needs values above zero."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    note: str = ""
    x_labels: Sequence[tuple[float, str]] = ()
    dividers: Sequence[float] = field(default_factory=tuple)
    log_y: bool = False
    width: int = 900
    height: int = 420


def draw(plot: Plot) -> str:
    """The plot as an SVG document. Raises ValueError without a point, and on one that is not finite."""
    xs = [x for one in plot.series for x, _, _ in one.points]
    ys = [y for one in plot.series for _, y, _ in one.points]
    if not xs or not all(math.isfinite(value) for value in (*xs, *ys)) or (plot.log_y and min(ys) <= 0):
        raise ValueError(f"{plot.title}: a plot needs points of finite coordinates, above zero on a logarithmic axis")
    x_axis = _Axis(min(xs), max(xs), LEFT, plot.width - RIGHT, log=False, pad=0.02)
    y_axis = _Axis(min(ys), max(ys), plot.height - BOTTOM, TOP, log=plot.log_y, pad=0.06)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plot.width} {plot.height}" role="img" '
        f'aria-label="{_quoted(plot.title)}">',
        f"<title>{escape(plot.title)}</title><desc>{escape(plot.note)}</desc><style>{STYLE}</style>",
        f'<rect class="page" width="{plot.width}" height="{plot.height}"/>',
        f'<text class="title" x="{LEFT}" y="22">{escape(plot.title)}</text>',
        *_axes(plot, x_axis, y_axis),
    ]
    for place, one in enumerate(plot.series):
        colour, shape = COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)]
        parts.append(f'<g fill="{colour}" fill-opacity="0.75">')
        parts += [_point(shape, x_axis.at(x), y_axis.at(y), said) for x, y, said in one.points]
        parts.append("</g>")
        parts += [
            f'<line x1="{x_axis.at(start):.1f}" x2="{x_axis.at(end):.1f}" y1="{y_axis.at(y):.1f}" '
            f'y2="{y_axis.at(y):.1f}" stroke="{colour}" stroke-width="3"><title>{escape(said)}</title></line>'
            for start, end, y, said in one.marks
        ]
        x = LEFT + place * (plot.width - LEFT - RIGHT) / max(3, len(plot.series))
        parts.append(f'<g fill="{colour}">{_point(shape, x + 5, 41, one.name)}</g>')
        parts.append(f'<text x="{x + 15:.0f}" y="45">{escape(one.name)}</text>')
    parts.append(f'<text class="note" x="{LEFT}" y="{plot.height - 8}">{escape(plot.note)}</text></svg>')
    return "\n".join(parts) + "\n"


def ticks(low: float, high: float, *, log: bool = False) -> list[float]:
    """Round numbers within the range: steps of 1, 2 or 5, about six; on a logarithmic axis from a list a decade."""
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [m * 10.0**d for d in decades for m in (1, 1.5, 2, 3, 4, 5, 6, 8) if low <= m * 10.0**d <= high]
        return found if len(found) > 2 else ticks(low, high)
    span = high - low
    if span <= 0:
        return [low]
    rough = span / 6
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


class _Axis:
    """From values to pixels."""

    def __init__(self, low: float, high: float, start_px: float, end_px: float, *, log: bool, pad: float) -> None:
        self._log = log
        low, high = self._scaled(low), self._scaled(high)
        room = (high - low or abs(high) or 1.0) * pad
        self._low, self._high = low - room, high + room
        self._start, self._end = start_px, end_px

    def at(self, value: float) -> float:
        share = (self._scaled(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        ends = (10**self._low, 10**self._high) if self._log else (self._low, self._high)
        return ticks(*ends, log=self._log)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value


def _axes(plot: Plot, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    right, floor = plot.width - RIGHT, plot.height - BOTTOM
    parts = []
    for value in y_axis.ticks():
        y = y_axis.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}" stroke-dasharray="4 3"/>'
        for x in map(x_axis.at, plot.dividers)
    ]
    labels = plot.x_labels or [(value, f"{value:g}") for value in x_axis.ticks()]
    for value, text in labels:
        x = x_axis.at(value)
        parts.append(f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{escape(text)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{floor}"/>')
    parts.append(f'<text x="{middle:.0f}" y="{floor + 36}" text-anchor="middle">{escape(plot.x_title)}</text>')
    height = (TOP + floor) / 2
    parts.append(
        f'<text transform="rotate(-90 16 {height:.0f})" x="16" y="{height:.0f}" text-anchor="middle">'
        f"{escape(plot.y_title)}</text>"
    )
    return parts


def _point(shape: str, x: float, y: float, said: str) -> str:
    tip = f"<title>{escape(said)}</title>"
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4">{tip}</circle>'
    if shape == "square":
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6">{tip}</rect>'
    tops = {"triangle": ((0, -4.2), (3.8, 3), (-3.8, 3)), "diamond": ((0, -4.4), (4.4, 0), (0, 4.4), (-4.4, 0))}[shape]
    corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in tops)
    return f'<polygon points="{corners}">{tip}</polygon>'


def _quoted(text: str) -> str:
    return escape(text, {'"': "&quot;"})
