# SPDX-License-Identifier: Apache-2.0
"""Chip-hours per day as one SVG file: readable on light and dark pages, and by a screen reader.

Nothing in the dependencies of the project draws charts; the usage page has its own for the browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from xml.sax.saxutils import escape

from airflow_tpu.core.ledger.daily import Daily
from airflow_tpu.core.report.table import chip_hours, shorten

WIDTH, PLOT_HEIGHT = 960, 260
_LEFT, _TOP, _GAP = 70, 16, 0.2
_LEGEND_COLUMNS, _LEGEND_LINE, _LEGEND_TEXT = 3, 22, 36
_TICKS = 4
# The colours of the usage page: Okabe and Ito's, which people with colour vision deficiency tell apart.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a900", "#8a8f98")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555f6e}.grid{stroke:#8a8f98;stroke-opacity:.35}"
    "@media(prefers-color-scheme:dark){text{fill:#c3cad5}}"
)


@dataclass(frozen=True)
class _Plot:
    """Where things stand, in units of the view box.

    :param daily: what is drawn.
    :param top: value at the upper edge, chip-hours.
    """

    daily: Daily
    top: Decimal

    @property
    def step(self) -> float:
        return (WIDTH - _LEFT - 10) / max(1, len(self.daily.days))

    def x(self, number: float) -> float:
        return _LEFT + self.step * number

    def y(self, value: Decimal) -> float:
        return _TOP + PLOT_HEIGHT * (1 - float(value / self.top))


def chart_svg(daily: Daily, title: str) -> str:
    """Draw it.

    :param daily: chip-hours by day and DAG.
    :param title: name of the chart.
    :return: the text of an SVG file without scripts or anything from elsewhere.
    """
    tick = _tick(daily.highest)
    plot = _Plot(daily, tick * _ceiling(daily.highest, tick))
    rows = -(-len(daily.series) // _LEGEND_COLUMNS)
    height = _TOP + PLOT_HEIGHT + 40 + _LEGEND_LINE * rows
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="t d" viewBox="0 0 {WIDTH} {height}">'
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(in_words(daily))}</desc><style>{_STYLE}</style>'
    )
    return "\n".join([head, *_grid(plot, tick), *_dates(plot), *_bars(plot), *_legend(daily), "</svg>\n"])


def in_words(daily: Daily) -> str:
    """The chart for those who cannot see it: period, and totals by DAG."""
    parts = ", ".join(f"{series.name} {chip_hours(series.total)}" for series in daily.series)
    return f"Chip-hours per day from {daily.days[0]} to {daily.days[-1]}, stacked by DAG. Totals: {parts or 'none'}."


def _tick(highest: Decimal) -> Decimal:
    """The distance of grid lines: 1, 2 or 5 times a power of ten, so that there are about four."""
    wanted = (highest or Decimal(1)) / _TICKS
    power = Decimal(1).scaleb(wanted.adjusted())
    return next(power * step for step in (1, 2, 5, 10) if power * step >= wanted)


def _ceiling(value: Decimal, tick: Decimal) -> int:
    return max(1, math.ceil(value / tick))


def _grid(plot: _Plot, tick: Decimal) -> Iterator[str]:
    for number in range(_ceiling(plot.top, tick) + 1):
        y = plot.y(tick * number)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{(tick * number).normalize():f}</text>'
    middle = _TOP + PLOT_HEIGHT / 2
    yield f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">chip-hours</text>'


def _dates(plot: _Plot) -> Iterator[str]:
    days = plot.daily.days
    every = 1 + len(days) // 16
    for number in range(0, len(days), every):
        x, y = plot.x(number + 0.5), _TOP + PLOT_HEIGHT + 20
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{days[number][5:]}</text>'


def _bars(plot: _Plot) -> Iterator[str]:
    for number, day in enumerate(plot.daily.days):
        base = Decimal(0)
        for series, colour in zip(plot.daily.series, _COLOURS, strict=False):
            value = series.values[number]
            if value:
                words = escape(f"{day}, {series.name}: {chip_hours(value)} chip-hours")
                low, high = plot.y(base), plot.y(base + value)
                x, width = plot.x(number + _GAP / 2), plot.step * (1 - _GAP)
                place = f'x="{x:.1f}" y="{high:.2f}" width="{width:.1f}" height="{low - high:.2f}"'
                yield f'<rect {place} fill="{colour}"><title>{words}</title></rect>'
                base += value


def _legend(daily: Daily) -> Iterator[str]:
    width = (WIDTH - _LEFT) // _LEGEND_COLUMNS
    for number, (series, colour) in enumerate(zip(daily.series, _COLOURS, strict=False)):
        row, column = divmod(number, _LEGEND_COLUMNS)
        x, y = _LEFT + width * column, _TOP + PLOT_HEIGHT + 36 + _LEGEND_LINE * row
        yield f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y + 11}">{escape(shorten(series.name, _LEGEND_TEXT))}</text>'
