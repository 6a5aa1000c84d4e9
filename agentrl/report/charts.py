"""Small charts as inline SVG without script or network; colours are CSS variables of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup, escape

LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
MOST_POINTS = 300


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height of a chart in pixels of the page, so that text has one size everywhere."""

    width: int
    height: int


SMALL, WIDE = Size(345, 168), Size(530, 224)


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: `y[i]` at `x[i]`, with an interval from `low` to `high`; `tone` names a colour of the page."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    tone: str = "blue"
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    has_dots: bool = False
    is_smoothed: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """One layer of a bar chart: a value for each bar."""

    name: str
    values: Sequence[float]
    tone: str = "blue"


@dataclass(frozen=True, slots=True)
class Frame:
    """Coordinates of a chart: data ranges and their position in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    size: Size

    def x(self, value: float) -> float:
        """Return the position of a value on the x axis."""
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (self.size.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the position of a value on the y axis."""
        return self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - TOP)

    @property
    def bottom(self) -> float:
        """The position of the lower axis."""
        return self.size.height - BOTTOM


def lines(
    series: Sequence[Series], label: str, size: Size = SMALL, bounds: tuple[float, float] | None = None
) -> Markup:
    """Draw a line chart over steps, of finite values only. `bounds` fixes the y axis; default: it fits the data."""
    shown = [_thin(_finite(s)) for s in series]
    xs = [x for s in shown for x in s.x]
    ys = [y for s in shown for column in (s.y, s.low, s.high) for y in column]
    if not xs:
        return empty(label, size)
    y_ticks = ticks(*(bounds or (min(ys), max(ys))))
    frame = Frame(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, y_ticks[0], y_ticks[-1], size)
    ranges = "; ".join(f"{s.name} from {number(s.y[0])} to {number(s.y[-1])}" for s in shown if s.y)
    body = _grid(frame, y_ticks) + _steps(frame) + "".join(_curve(frame, s) for s in shown)
    return _svg(body, f"{label}: {ranges}", size)


def stacked(layers: Sequence[Bars], starts: Sequence[float], label: str, size: Size = WIDE) -> Markup:
    """Draw stacked bars over steps; `starts[i]` is the step of bar i. Neighbours are averaged if there are too many."""
    if not starts:
        return empty(label, size)
    layers, starts = _pool(layers, starts)
    totals = [sum(layer.values[i] for layer in layers) for i in range(len(starts))]
    y_ticks = ticks(0.0, max(totals))
    width = starts[1] - starts[0] if len(starts) > 1 else 1.0
    frame = Frame(starts[0] - width / 2, starts[-1] + width / 2, 0.0, y_ticks[-1], size)
    gap = 1.0 if len(starts) <= 100 else 0.0
    bars = []
    for i, start in enumerate(starts):
        left, right = frame.x(start - width / 2) + gap / 2, frame.x(start + width / 2) - gap / 2
        base = 0.0
        for layer in layers:
            bars.append(_bar(left, right, frame.y(base + layer.values[i]), frame.y(base), layer.tone, ""))
            base += layer.values[i]
        parts = ", ".join(f"{layer.name} {number(layer.values[i])}" for layer in layers if layer.values[i] > 0)
        bars.append(_target(frame, left, right, f"step {number(start)}: {parts}"))
    mean = sum(totals) / len(totals)
    return _svg(_grid(frame, y_ticks) + _steps(frame) + "".join(bars), f"{label}: {number(mean)} on average", size)


def histogram(names: Sequence[str], layer: Bars, label: str, size: Size = WIDE) -> Markup:
    """Draw one bar for each name with its value above it."""
    if not names:
        return empty(label, size)
    y_ticks = ticks(0.0, max(layer.values) or 1.0)
    frame = Frame(-0.5, len(names) - 0.5, 0.0, y_ticks[-1], size)
    half = min(0.36, 32 / (size.width - LEFT - RIGHT) * len(names))
    body = []
    for i, (name, value) in enumerate(zip(names, layer.values, strict=True)):
        left, right, top = frame.x(i - half), frame.x(i + half), frame.y(value)
        body.append(_bar(left, right, top, frame.y(0), layer.tone, f"{name}: {number(value)}"))
        body.append(_text(frame.x(i), top - 4 if top > TOP + 8 else TOP + 6, number(value), "middle", "ink"))
        body.append(_text(frame.x(i), frame.bottom + 17, name, "middle"))
    values = ", ".join(f"{name}: {number(value)}" for name, value in zip(names, layer.values, strict=True))
    return _svg(_grid(frame, y_ticks) + "".join(body), f"{label}: {values}", size)


def empty(label: str, size: Size = SMALL) -> Markup:
    """Draw a chart that has no data."""
    return _svg(_text(size.width / 2, size.height / 2, "no data", "middle"), f"{label}: no data", size)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers that cover low..high, 1, 2, 2.5 or 5 times a power of ten apart."""
    if high <= low:
        low, high = (low - abs(low) * 0.1, low + abs(low) * 0.1) if low else (0.0, 1.0)
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number in short form: 1,234, 12.3, 0.123, 2e-05."""
    if value == 0 or abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}" if abs(value) < 1e6 else f"{value / 1e6:,.4g} M"
    return f"{value:.3g}"


# --- inside ---------------------------------------------------------------------------------------------------


def _svg(body: str, label: str, size: Size) -> Markup:
    head = f'<svg viewBox="0 0 {size.width} {size.height}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{head}{body}</svg>")


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _bar(left: float, right: float, top: float, bottom: float, tone: str, title: str) -> str:
    box = f'x="{left:.1f}" y="{top:.1f}" width="{max(0.5, right - left):.1f}" height="{max(0.0, bottom - top):.1f}"'
    return f'<rect class="fill {tone}" {box}>{_title(title)}</rect>'


def _target(frame: Frame, left: float, right: float, title: str) -> str:
    box = f'x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{frame.bottom - TOP}"'
    return f'<rect class="target" {box}>{_title(title)}</rect>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _grid(frame: Frame, y_ticks: Sequence[float]) -> str:
    out = []
    for tick in y_ticks:
        y = frame.y(tick)
        kind = "axis" if tick == y_ticks[0] else "grid"
        out.append(f'<line class="{kind}" x1="{LEFT}" x2="{frame.size.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(_text(LEFT - 7, y + 3.5, number(round(tick, 12)), "end"))
    return "".join(out)


def _steps(frame: Frame) -> str:
    inside = [tick for tick in ticks(frame.x_low, frame.x_high, 6) if frame.x_low <= tick <= frame.x_high]
    whole = [tick for tick in inside if tick == int(tick)]
    return "".join(_text(frame.x(tick), frame.bottom + 17, number(tick), "middle") for tick in whole)


def _curve(frame: Frame, s: Series) -> str:
    points = [(frame.x(x), frame.y(y)) for x, y in zip(s.x, s.y, strict=True)]
    out = _band(frame, s) if s.low else ""
    if s.is_smoothed and len(points) >= 12:
        out += f'<path class="line faint {s.tone}" d="{_path(points)}"/>'
        smooth = running_mean(s.y, max(3, len(s.y) // 12))
        smoothed = [(x, frame.y(y)) for (x, _), y in zip(points, smooth, strict=True)]
        out += f'<path class="line {s.tone}" d="{_path(smoothed)}"/>'
    else:
        out += f'<path class="line {s.tone}" d="{_path(points)}"/>'
    if s.has_dots or len(points) == 1:
        out += "".join(f'<circle class="dot {s.tone}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points)
    return out + "".join(_touch(s, i, *point) for i, point in enumerate(points))


def _touch(s: Series, i: int, x: float, y: float) -> str:
    interval = f" [{number(s.low[i])}, {number(s.high[i])}]" if s.low else ""
    text = f"step {number(s.x[i])}: {s.name} {number(s.y[i])}{interval}"
    return f'<circle class="target" cx="{x:.1f}" cy="{y:.1f}" r="6">{_title(text)}</circle>'


def _band(frame: Frame, s: Series) -> str:
    upper = [(frame.x(x), frame.y(y)) for x, y in zip(s.x, s.high, strict=True)]
    lower = [(frame.x(x), frame.y(y)) for x, y in zip(s.x, s.low, strict=True)]
    return f'<path class="band {s.tone}" d="{_path(upper + lower[::-1])}Z"/>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of `width` values around each value, of fewer at the ends so that the window stays centred."""
    out = []
    for i in range(len(values)):
        reach = min(width // 2, i, len(values) - 1 - i)
        window = values[i - reach : i + reach + 1]
        out.append(sum(window) / len(window))
    return out


def _finite(s: Series) -> Series:
    kept = [i for i, y in enumerate(s.y) if math.isfinite(y)]
    x, y = [s.x[i] for i in kept], [s.y[i] for i in kept]
    low, high = ([column[i] for i in kept] if column else [] for column in (s.low, s.high))
    return replace(s, x=x, y=y, low=low, high=high)


def _thin(s: Series) -> Series:
    """Reduce a series to at most MOST_POINTS points by averaging neighbours."""
    size = math.ceil(len(s.y) / MOST_POINTS)
    if size <= 1:
        return s
    x, y, low, high = (_means(column, size) for column in (s.x, s.y, s.low, s.high))
    return replace(s, x=x, y=y, low=low, high=high)


def _pool(layers: Sequence[Bars], starts: Sequence[float]) -> tuple[list[Bars], list[float]]:
    size = math.ceil(len(starts) / MOST_POINTS)
    return [replace(layer, values=_means(layer.values, size)) for layer in layers], _means(starts, size)


def _means(values: Sequence[float], size: int) -> list[float]:
    edges = [*range(0, len(values), size), len(values)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
