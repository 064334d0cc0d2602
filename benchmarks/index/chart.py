"""Draw line charts of a run as one SVG, without a library: a panel per quantity over the minutes of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

WIDTH, PANEL, LEFT, GAP = 900, 130, 90, 34


def charts(title: str, minutes: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """Return the SVG's text; `series` is a panel's heading → one value per entry of `minutes`."""
    height = 40 + len(series) * (PANEL + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="13">{title}</text>',
    ]
    for number, (name, values) in enumerate(series.items()):
        parts += _panel(name, minutes, values, top=50 + number * (PANEL + GAP))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(name: str, minutes: Sequence[float], values: Sequence[float], *, top: int) -> list[str]:
    high = max(values, default=1.0) or 1.0
    end = minutes[-1] if minutes else 1.0
    width = WIDTH - LEFT - 20
    points = " ".join(
        f"{LEFT + width * at / end:.1f},{top + PANEL - PANEL * value / high:.1f}"
        for at, value in zip(minutes, values, strict=True)
    )
    return [
        f'<text x="10" y="{top - 6}" font-size="12">{name}</text>',
        f'<line x1="{LEFT}" y1="{top + PANEL}" x2="{LEFT + width}" y2="{top + PANEL}" stroke="#888"/>',
        f'<text x="{LEFT - 6}" y="{top + 26}" font-size="11" text-anchor="end">{high:,.4g}</text>',
        f'<text x="{LEFT - 6}" y="{top + PANEL}" font-size="11" text-anchor="end">0</text>',
        f'<text x="{LEFT + width}" y="{top + PANEL + 14}" font-size="11" text-anchor="end">{end:.0f} min</text>',
        f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>',
    ]


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values; 0 without values."""
    return sum(values) / max(1, len(values))


def lower_quartile(values: Sequence[float]) -> float:
    """Return the value below which a quarter of the values are; 0 without values."""
    return sorted(values)[len(values) // 4] if values else 0.0


def part(values: Sequence[float], number: int, parts: int) -> Sequence[float]:
    """Return one of `parts` equal parts of the values; `number` counts from 0."""
    return values[number * len(values) // parts : (number + 1) * len(values) // parts]


def growth(values: Sequence[float], *, parts: int = 3, level: Callable[[Sequence[float]], float] = mean) -> float:
    """Return the growth of a level from the last but one of `parts` equal parts to the last one: 0.1 is 10 %."""
    before, after = (level(part(values, number, parts)) for number in (parts - 2, parts - 1))
    return (after - before) / before if before else after
