# SPDX-License-Identifier: Apache-2.0
"""One calendar month of the ledger: its days, its incarnations, its chart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from airflow_tpu.core.ledger.daily import Daily, daily, span, used_days
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.errors import ConfigError, Fault

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


@dataclass(frozen=True)
class Month:
    """A calendar month, in UTC.

    :param first: its first day.
    """

    first: date

    @classmethod
    def parse(cls, text: str) -> Month:
        """Read ``2026-11``.

        :raises ConfigError: it is no month.
        """
        found = _MONTH.fullmatch(text)
        if found is None or found[1] == "0000":
            raise ConfigError([Fault("month", text, "is not a month", ("2026-11",))])
        return cls(date(int(found[1]), int(found[2]), 1))

    @classmethod
    def before(cls, now: datetime) -> Month:
        """The last month that has ended at an instant in UTC."""
        return cls((now.date().replace(day=1) - timedelta(days=1)).replace(day=1))

    @property
    def last(self) -> date:
        """Its last day."""
        return (self.first + timedelta(days=31)).replace(day=1) - timedelta(days=1)

    @property
    def selection(self) -> LedgerFilter:
        """Its incarnations: all that were requested in it, each as a whole, so that the months of a year add up."""
        return LedgerFilter(begin=self.first, end=self.last)

    def __str__(self) -> str:
        return f"{self.first:%Y-%m}"


def month_daily(usage: Usage, month: Month) -> Daily:
    """Every day of the month, and the days after it on which one of its incarnations still ran."""
    last = max([f"{month.last}", *used_days(usage.rows)[-1:]])
    return daily(usage.rows, span(month.first, date.fromisoformat(last)))
