# SPDX-License-Identifier: Apache-2.0
"""How far a script is that prints nothing, from what it writes to ``progress.json``; the file may hold anything."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.tpu.readiness import spoken

QUIET = dt.timedelta(minutes=1)
"""Silence of the log after which its progress is shown, and the least time between two such lines."""

_STATE_CHARS = 40
_MOST = 10**15
_LONGEST_ETA = 1000 * 86_400
"""Seconds; what a script hopes for beyond that is no forecast."""


class ProgressLines:
    """Makes one line of the progress for each minute of silence.

    :param since: when the silence begins.
    :param quiet: how long it lasts before a line is due.
    """

    def __init__(self, since: dt.datetime, quiet: dt.timedelta = QUIET) -> None:
        self._last = since
        self._quiet = quiet
        self._at: tuple[str, dt.datetime] | None = None

    def printed(self, now: dt.datetime) -> None:
        """The script has printed a line: that says how far it is."""
        self._last = now

    def line(self, progress: Mapping[str, Any] | None, now: dt.datetime, until: dt.datetime) -> str:
        """Return where the script is, since when if it stands still, and until when; empty if no line is due.

        :param progress: content of ``progress.json``, None if there is nothing readable.
        :param now: this moment.
        :param until: when the run is stopped.
        """
        where = position(progress or {})
        if not where:
            return ""
        if self._at is None or self._at[0] != where:
            self._at = (where, now)
        if now - self._last < self._quiet:
            return ""
        self._last = now
        stands = f" since {_clock(self._at[1], now)}" if now - self._at[1] >= QUIET else ""
        return f"progress.json: {where}{stands}{pace(progress or {}, now)}; the run is stopped at {_clock(until, now)}"


def position(progress: Mapping[str, Any]) -> str:
    """State and step, empty if the file tells neither."""
    state, step, total = progress.get("state"), _whole(progress.get("step")), _whole(progress.get("total_steps"))
    words = [" ".join(state.split())[:_STATE_CHARS]] if isinstance(state, str) and state.isprintable() else []
    if step is not None:
        of = f" of {total} ({100 * step // total} %)" if total and step <= total else ""
        words.append(f"step {step}{of}")
    return ", ".join(word for word in words if word)


def pace(progress: Mapping[str, Any], now: dt.datetime) -> str:
    """Steps per second, what is left by the script's own forecast, and the step that is safe; each if it is told."""
    rate, left = _amount(progress.get("steps_per_second")), _amount(progress.get("eta_seconds"))
    safe = _whole(progress.get("last_durable_step"))
    words = [f"{rate:.3g} steps/s"] if rate is not None else []
    if left is not None and left <= _LONGEST_ETA:
        words.append(f"{spoken(int(left))} left, until {_clock(now + dt.timedelta(seconds=left), now)}")
    words += [f"step {safe} is saved"] if safe is not None else []
    return "".join(f", {word}" for word in words)


def _clock(at: dt.datetime, now: dt.datetime) -> str:
    """An instant, with its date where that is another day."""
    at, now = at.astimezone(dt.UTC), now.astimezone(dt.UTC)
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MOST else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST else None  # neither NaN nor a number that no float holds
