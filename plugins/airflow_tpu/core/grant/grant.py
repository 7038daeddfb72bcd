"""The grant as the letter gives it and the grant file writes it down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance, parse_allowances
from airflow_tpu.core.request import paths
from airflow_tpu.core.request.fields import Field, Invalid, integer, plain, positive, read_fields
from airflow_tpu.errors import GrantError

DEFAULT_PREFIX = "airflow-tpu"
WARN_DAYS = 7
"""Days before the end of the term from which people are warned, as Google does: an extension takes some days."""
_PROJECT_ID = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_YEARS = range(2015, 2101)


@dataclass(frozen=True)
class Grant:
    """What the letter of the TPU Research Cloud allows.

    :param project_id: id of the project it was given to.
    :param project_number: the number that was sent in for it, as text.
    :param start: aware instant the term starts.
    :param days: length of the term.
    :param timezone: name of the timezone the dates are meant in.
    :param allowances: its rows.
    :param bucket: bucket of ledger, leases and artifacts.
    :param prefix: folder in it.
    :param credit: US dollars of credit for what is not covered, None if there is none.
    :param generations: the rule by which chips of a type are counted.
    """

    project_id: str
    project_number: str
    start: datetime
    days: int
    timezone: str
    allowances: tuple[Allowance, ...]
    bucket: str
    prefix: str = DEFAULT_PREFIX
    credit: Decimal | None = None
    generations: Generations = field(kw_only=True, repr=False, compare=False)

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], generations: Generations) -> Grant:
        """Read the mapping of a grant file.

        :param generations: of the catalogue; a row of a generation that is not among them is refused.
        :raises GrantError: with every fault.
        """
        values, faults = read_fields(mapping, _FIELDS)
        rows = values.pop("allowances", None)
        if isinstance(mapping, Mapping) and rows is not None:
            values["allowances"], wrong = parse_allowances(rows, generations)
            faults += wrong
        if faults:
            raise GrantError(faults, "the grant file")
        start = _placed(values["start"], values["timezone"])
        return cls(**{**values, "start": start}, generations=generations)

    @property
    def ends_at(self) -> datetime:
        """Instant from which nothing is covered, in UTC.

        The letter gives days, not an hour, and Google may end the last day at any: with a start that has no hour
        the term ends when its last day begins.
        """
        return (self.start + timedelta(days=self.days)).astimezone(UTC)

    def is_in_force(self, now: datetime) -> bool:
        """Whether the term has begun and is not over; outside it everything is billed."""
        return self.start <= now < self.ends_at

    def days_left(self, now: datetime) -> float:
        """Days of the term that are left, 0 once it is over."""
        return max(0.0, (self.ends_at - now).total_seconds() / 86_400)

    def to_json(self) -> dict[str, Any]:
        """The mapping of a grant file; :meth:`parse` reads it back."""
        credit = {} if self.credit is None else {"credit": str(self.credit)}
        return {
            "project_id": self.project_id,
            "project_number": self.project_number,
            "start": self.start.isoformat(),
            "days": self.days,
            "timezone": self.timezone,
            "allowances": [row.to_json() for row in self.allowances],
            "bucket": self.bucket,
            "prefix": self.prefix,
            **credit,
        }


def _project_id(value: Any) -> str:
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        raise Invalid("is a project number; the id is the name with letters")
    project = plain(value)
    if not _PROJECT_ID.fullmatch(project):
        raise Invalid("a project id has 6 to 30 lower-case letters, digits and hyphens, first a letter")
    return project


def _project_number(value: Any) -> str:
    number = str(value) if isinstance(value, int) and not isinstance(value, bool) else plain(value)
    if not re.fullmatch(r"[1-9][0-9]{5,17}", number):
        raise Invalid("must be the project number, digits only (the console's dashboard shows it beside the id)")
    return number


def _start(value: Any) -> date:
    try:
        found = _as_date(value)
    except ValueError:
        raise Invalid("must be a date such as 2026-09-03, or a date and time") from None
    if found.year not in _YEARS:
        raise Invalid(f"must be from {_YEARS[0]} to {_YEARS[-1]}")
    return found


def _as_date(value: Any) -> date:
    if isinstance(value, date):
        return value
    text = plain(value)
    return date.fromisoformat(text) if _DATE.fullmatch(text) else datetime.fromisoformat(text)


def _timezone(value: Any) -> str:
    name = plain(value)
    try:
        ZoneInfo(name)  # all names are only listed for a wrong one: that walks the whole database
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid("is no timezone name such as Europe/Berlin", nearest=_nearest_timezone(name)) from None
    return name


def _nearest_timezone(name: str) -> str | None:
    lowered = {zone.lower(): zone for zone in available_timezones()}
    return lowered.get(nearest(name, lowered) or "")


def _credit(value: Any) -> Decimal:
    return Decimal(str(positive(1_000_000)(value)))


def _placed(start: date, timezone: str) -> datetime:
    """The start in its timezone, at midnight if it has no hour."""
    zone = ZoneInfo(timezone)
    if not isinstance(start, datetime):
        return datetime(start.year, start.month, start.day, tzinfo=zone)
    return start if start.tzinfo else start.replace(tzinfo=zone)


_FIELDS: Mapping[str, Field] = {
    "project_id": Field(_project_id),
    "project_number": Field(_project_number),
    "start": Field(_start),
    "days": Field(integer(1, 3660)),
    "timezone": Field(_timezone, "UTC"),
    "allowances": Field(lambda rows: rows),
    "bucket": Field(paths.bucket_name),
    "prefix": Field(paths.object_prefix, DEFAULT_PREFIX),
    "credit": Field(_credit, None),
}
