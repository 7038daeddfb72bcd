# SPDX-License-Identifier: Apache-2.0
"""The dates of a DAG run, which the form may name in any text and the script finds in its environment.

Only dates can be named: a person who may trigger a DAG must not read its connections and variables by a template.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.core.request.fields import REDACTED, shown
from airflow_tpu.core.request.form_fields import FORM
from airflow_tpu.errors import ConfigError, Fault

_OPENS = "{{"


def _iso(value: dt.datetime | None) -> str:
    return "" if value is None else value.astimezone(dt.UTC).isoformat()


@dataclass(frozen=True)
class RunDates:
    """When a run is due, and for which data; a run that a person has triggered may have none of them.

    :param logical_date: the date that the run stands for.
    :param data_interval_start: where its data begin.
    :param data_interval_end: where they end.
    """

    logical_date: dt.datetime | None = None
    data_interval_start: dt.datetime | None = None
    data_interval_end: dt.datetime | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the script finds: ISO 8601 in UTC, empty for what the run does not have."""
        return {f"TRC_{name.upper()}": _iso(value) for name, value in self._instants().items()}

    @property
    def names(self) -> dict[str, str]:
        """What a text of the form may name, as Airflow's templates do; without what the run does not have."""
        found = {name: _iso(value) for name, value in self._instants().items() if value is not None}
        if self.logical_date is not None:
            day = self.logical_date.astimezone(dt.UTC)
            found["ds"], found["ds_nodash"] = f"{day:%Y-%m-%d}", f"{day:%Y%m%d}"
            found["ts"], found["ts_nodash"] = _iso(day), f"{day:%Y%m%dT%H%M%S}"
        return found

    def _instants(self) -> dict[str, dt.datetime | None]:
        return {
            "logical_date": self.logical_date,
            "data_interval_start": self.data_interval_start,
            "data_interval_end": self.data_interval_end,
        }


ALL_NAMES = tuple(RunDates(*[dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 3).names)
"""Every name that a text may hold between ``{{`` and ``}}``."""


def with_dates(form: Mapping[str, Any], dates: RunDates) -> dict[str, Any]:
    """Return the form with the dates that its texts name.

    :param form: what was submitted.
    :param dates: of the run.
    :raises ConfigError: a text names something else, or a date that this run does not have.
    """
    faults: list[Fault] = []
    found = dict(form)
    for field, value in form.items():
        if isinstance(value, str) and _OPENS in value:
            try:
                found[field] = _rendered(value, dates)
            except LookupError as error:
                sensitive = field in FORM and FORM[field].sensitive
                faults.append(_fault(field, REDACTED if sensitive else shown(value), str(error.args[0]), dates))
    if faults:
        raise ConfigError(faults, "the trigger form")
    return found


def _rendered(text: str, dates: RunDates) -> str:
    """Return a text with its names replaced.

    :raises LookupError: with the first name that has no value.
    """
    parts = text.split(_OPENS)
    done = [parts[0]]
    for part in parts[1:]:
        name, closed, rest = part.partition("}}")
        value = dates.names.get(name.strip()) if closed else None
        if value is None:
            raise LookupError(name.strip() if closed else f"{name.strip()}, without the closing braces,")
        done += (value, rest)
    return "".join(done)


def _fault(field: str, value: object, name: str, dates: RunDates) -> Fault:
    if name in ALL_NAMES:
        problem = f"names {name}, and this run has none: give the date as text, or trigger with a logical date"
        return Fault(field, value, problem, tuple(dates.names))
    return Fault(field, value, f"names {name[:40]!r} between {{{{ and }}}}", ALL_NAMES, nearest(name, ALL_NAMES))
