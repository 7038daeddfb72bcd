# SPDX-License-Identifier: Apache-2.0
"""The grant as the letter gives it and the grant file writes it down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance, parse_allowances
from airflow_tpu.core.request import paths
from airflow_tpu.core.request.fields import Field, Invalid, integer, optional, plain, read_fields
from airflow_tpu.errors import GrantError

DEFAULT_PREFIX = "airflow-tpu"
WARN_DAYS = 7
"""Days before the end of the term from which people are warned, as Google does: an extension takes some days."""
_PROJECT_ID = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_YEARS = range(2015, 2101)
_EARLIEST, _LATEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
"""Where a day begins first and last (time zones ``Pacific/Kiritimati`` and ``Etc/GMT+12`` of the IANA database)."""


@dataclass(frozen=True)
class Grant:
    """What the letter of the TPU Research Cloud allows.

    :param project_id: id of the project it was given to.
    :param project_number: the number that was sent in for it, as text.
    :param start: aware instant the term starts, the earliest that the grant file may mean.
    :param days: length of the term, in days of 24 hours.
    :param timezone: name of the timezone the dates are meant in, empty if the grant file does not say.
    :param allowances: its rows.
    :param bucket: bucket of ledger, leases and artifacts.
    :param prefix: folder in it.
    :param doubt: how much later than ``start`` the term may start, because the grant file leaves it open.
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
    doubt: timedelta = timedelta(0)
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
        start, doubt = _placed(values["start"], values["timezone"])
        return cls(**{**values, "start": start}, doubt=doubt, generations=generations)

    @property
    def begins_at(self) -> datetime:
        """Instant from which the grant covers, in UTC: the latest that the grant file may mean."""
        return self.start.astimezone(UTC) + self.doubt

    @property
    def ends_at(self) -> datetime:
        """Instant from which nothing is covered, in UTC.

        The letter gives days, not an hour, and Google may end the last day at any: with a start that has no hour
        the term ends when its last day begins. Days have 24 hours, also where the clocks change in between.
        """
        return self.start.astimezone(UTC) + timedelta(days=self.days)

    @property
    def zone(self) -> ZoneInfo:
        """The timezone in which dates are shown: the grant file's, else UTC."""
        return ZoneInfo(self.timezone or "UTC")

    def is_in_force(self, now: datetime) -> bool:
        """Whether the term has begun and is not over; outside it everything is billed."""
        return self.begins_at <= now < self.ends_at

    def days_left(self, now: datetime) -> float:
        """Days of the term that are left, 0 once it is over."""
        return max(0.0, (self.ends_at - now).total_seconds() / 86_400)

    @property
    def start_text(self) -> str:
        """The start as a grant file writes it, with an offset if it has one of its own."""
        local = self.start.replace(tzinfo=None)
        if (self.start, self.doubt) != _placed(local, self.timezone):
            return self.start.isoformat()
        return (local if local.time() else local.date()).isoformat()

    def to_json(self) -> dict[str, Any]:
        """Return the mapping of a grant file; :meth:`parse` reads it back.

        People write that file: it has the term as they write it and leaves out what is not set, so it is not the one
        form of :mod:`airflow_tpu.core.json_form`, which holds every field under its own name.
        """
        zone = {"timezone": self.timezone} if self.timezone else {}
        return {
            "project_id": self.project_id,
            "project_number": self.project_number,
            "start": self.start_text,
            "days": self.days,
            **zone,
            "allowances": [row.to_json() for row in self.allowances],
            "bucket": self.bucket,
            "prefix": self.prefix,
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


def _placed(start: date, timezone: str) -> tuple[datetime, timedelta]:
    """The earliest instant that a start may mean, at midnight if it has no hour, and how much later it may be.

    A default timezone would be on the side that is billed for most people: at the start of the term for those west
    of it, at the end for those east of it. The hour that clocks pass twice is open too.
    """
    at = start if isinstance(start, datetime) else datetime.combine(start, time())
    if at.tzinfo:
        return at, timedelta(0)
    first, last = (ZoneInfo(timezone),) * 2 if timezone else (_EARLIEST, _LATEST)
    earliest, latest = at.replace(tzinfo=first), at.replace(tzinfo=last, fold=1)
    return earliest, max(latest.astimezone(UTC) - earliest.astimezone(UTC), timedelta(0))


_FIELDS: Mapping[str, Field] = {
    "project_id": Field(_project_id),
    "project_number": Field(_project_number),
    "start": Field(_start),
    "days": Field(integer(1, 3660)),
    "timezone": Field(optional(_timezone), ""),
    "allowances": Field(lambda rows: rows),
    "bucket": Field(paths.bucket_name),
    "prefix": Field(paths.object_prefix, DEFAULT_PREFIX),
}
