# SPDX-License-Identifier: Apache-2.0
"""The grant file, in both dialects of the letter."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

import pytest

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import Fault, GrantError
from tests.airflow_tpu.shipped import GENERATIONS


def faults_of(mapping: object) -> dict[str, Fault]:
    """The faults of a grant file, by field."""
    with pytest.raises(GrantError) as caught:
        Grant.parse(mapping, GENERATIONS)  # type: ignore[arg-type]
    return {fault.field: fault for fault in caught.value.faults}


def test_the_six_rows_of_the_letter(grant_mapping: dict[str, Any]) -> None:
    """The example holds the rows of the letters of 2025-26."""
    grant = Grant.parse(grant_mapping, GENERATIONS)
    assert [str(row) for row in grant.allowances] == [
        "32 spot v4 chips in us-central2-b",
        "32 on-demand v4 chips in us-central2-b",
        "64 spot v5e chips in europe-west4-b",
        "64 spot v5e chips in us-central1-a",
        "64 spot v6e chips in europe-west4-a",
        "64 spot v6e chips in us-east1-d",
    ]


def test_the_old_dialect(local_grant: Grant) -> None:
    """Letters until 2024 count whole devices of a type; preemptible means spot."""
    row = local_grant.allowances[0]
    assert row == Allowance(5, "devices", Tier.ON_DEMAND, "us-central1-f", "v2", "v2-8")
    again = Grant.parse(
        {**local_grant.to_json(), "allowances": [{**row.to_json(), "unit": "device", "tier": "preemptible"}]},
        GENERATIONS,
    )
    assert again.allowances[0].tier is Tier.SPOT


def test_the_json_form_is_read_back(grant_mapping: dict[str, Any], local_grant: Grant) -> None:
    """Writing a grant down and reading it gives the same grant."""
    for grant in (Grant.parse(grant_mapping, GENERATIONS), local_grant):
        assert Grant.parse(json.loads(json.dumps(grant.to_json())), GENERATIONS) == grant


def test_all_faults_at_once(grant_mapping: dict[str, Any]) -> None:
    """Each wrong field is named, the rows by number."""
    rows = [
        {"count": 0, "unit": "chips", "tier": "spot", "generation": "v4", "zone": "us-central2-b"},
        {"count": 1, "unit": "chips", "tier": "spott", "generation": "v4", "zone": "us-central2"},
        {"count": 1, "unit": "devices", "tier": "spot", "type": "v3-32", "zone": "us-central1-a"},
        {"count": 1, "unit": "devices", "tier": "spot", "generation": "v3", "zone": "us-central1-a"},
        {"count": 1, "unit": "chips", "tier": "spot", "zone": "us-central1-a"},
        {"count": 1, "unit": "chips", "tier": "spot", "type": "v4", "zone": "us-central2-b"},
        {"count": 1, "unit": "chips", "tier": "spot", "generation": "v7", "zone": "us-central2-b"},
        "64 spot v5e chips",
    ]
    faults = faults_of({**grant_mapping, "project_number": "my-tpu-project", "days": "ninety", "allowances": rows})
    assert set(faults) == {
        "project_number",
        "days",
        "allowances[0].count",
        "allowances[1].tier",
        "allowances[1].zone",
        "allowances[2].type",
        "allowances[3].unit",
        "allowances[4].type",
        "allowances[5].type",
        "allowances[6].generation",
        "allowances[7]",
    }
    assert faults["allowances[5].type"].nearest == "generation: v4"
    assert "cannot form pods" in faults["allowances[2].type"].problem


@pytest.mark.parametrize("number", ["my-tpu-project", "", 0, True, "12", -5, 1.5, None, "0123456789"])
def test_what_is_no_project_number(grant_mapping: dict[str, Any], number: object) -> None:
    """The grant is tied to the number; the id in its place is a common slip."""
    assert list(faults_of({**grant_mapping, "project_number": number})) == ["project_number"]


@pytest.mark.parametrize("project", [123456789012, "123456789012", "My-Project", "abc", "", "x" * 31])
def test_what_is_no_project_id(grant_mapping: dict[str, Any], project: object) -> None:
    """And the number in place of the id is the other one."""
    assert list(faults_of({**grant_mapping, "project_id": project})) == ["project_id"]


@pytest.mark.parametrize("rows", [[], None, "64 spot v5e chips", {"count": 1}])
def test_a_grant_without_rows(grant_mapping: dict[str, Any], rows: object) -> None:
    """A grant that allows nothing is a mistake in the file."""
    assert list(faults_of({**grant_mapping, "allowances": rows})) == ["allowances"]


def test_the_same_row_twice(grant_mapping: dict[str, Any]) -> None:
    """Two rows for one pool would be counted twice, so their counts must be added up in the file."""
    rows = grant_mapping["allowances"]
    assert "more than once" in faults_of({**grant_mapping, "allowances": [*rows, rows[0]]})["allowances"].problem


@pytest.mark.parametrize("given_value", [[], None, "text"])
def test_no_mapping_at_all(given_value: object) -> None:
    """An empty or odd file is one fault."""
    assert list(faults_of(given_value)) == ["(all)"]


@pytest.mark.parametrize(
    ("start", "timezone", "days", "ends_at"),
    [
        (date(2026, 9, 3), "UTC", 90, datetime(2026, 12, 2, tzinfo=UTC)),
        ("2026-09-03", "UTC", 90, datetime(2026, 12, 2, tzinfo=UTC)),
        # midnight in Seoul is the afternoon before in UTC
        ("2026-09-03", "Asia/Seoul", 90, datetime(2026, 12, 1, 15, tzinfo=UTC)),
        # the clocks go back in between, and forward: a day has 24 hours all the same
        ("2026-10-01", "Europe/Berlin", 60, datetime(2026, 11, 29, 22, tzinfo=UTC)),
        ("2026-03-01", "Europe/Berlin", 60, datetime(2026, 4, 29, 23, tzinfo=UTC)),
        ("2026-09-03T14:30:00", "UTC", 1, datetime(2026, 9, 4, 14, 30, tzinfo=UTC)),
        ("2026-09-03T14:30:00+09:00", "UTC", 1, datetime(2026, 9, 4, 5, 30, tzinfo=UTC)),
        (datetime(2026, 9, 3, 14, tzinfo=UTC), "Asia/Seoul", 1, datetime(2026, 9, 4, 14, tzinfo=UTC)),
        ("2028-02-28", "UTC", 1, datetime(2028, 2, 29, tzinfo=UTC)),
        ("2028-02-28", "UTC", 366, datetime(2029, 2, 28, tzinfo=UTC)),
    ],
)
def test_the_end_of_the_term(
    grant_mapping: dict[str, Any], start: object, timezone: str, days: int, ends_at: datetime
) -> None:
    """Without an hour the term ends when its last day begins, where the dates are meant."""
    grant = Grant.parse({**grant_mapping, "start": start, "timezone": timezone, "days": days}, GENERATIONS)
    assert grant.ends_at == ends_at
    assert grant.days_left(ends_at - timedelta(hours=36)) == 1.5
    assert grant.days_left(ends_at + timedelta(days=1)) == 0


@pytest.mark.parametrize(
    ("start", "begins_at", "ends_at"),
    [
        ("2026-09-03", datetime(2026, 9, 3, 12, tzinfo=UTC), datetime(2026, 10, 2, 10, tzinfo=UTC)),
        ("2026-09-03T14:30:00", datetime(2026, 9, 4, 2, 30, tzinfo=UTC), datetime(2026, 10, 3, 0, 30, tzinfo=UTC)),
        (
            "2026-09-03T14:30:00+09:00",
            datetime(2026, 9, 3, 5, 30, tzinfo=UTC),
            datetime(2026, 10, 3, 5, 30, tzinfo=UTC),
        ),
    ],
)
def test_term_without_a_timezone(
    grant_mapping: dict[str, Any], start: str, begins_at: datetime, ends_at: datetime
) -> None:
    """No timezone is assumed: the term begins where the day begins last, and ends where it ends first."""
    del grant_mapping["timezone"]
    grant = Grant.parse({**grant_mapping, "start": start, "days": 30}, GENERATIONS)
    assert (grant.begins_at, grant.ends_at) == (begins_at, ends_at)
    assert not grant.is_in_force(begins_at - timedelta(seconds=1))
    assert grant.is_in_force(begins_at)
    assert Grant.parse(json.loads(json.dumps(grant.to_json())), GENERATIONS) == grant


def test_hours_that_count_without_a_timezone_count_in_each(grant_mapping: dict[str, Any]) -> None:
    """Whichever timezone the letter meant, no hour counts as free that is not."""
    dated = {**grant_mapping, "start": "2026-09-03", "days": 90}
    unsaid = Grant.parse({**dated, "timezone": ""}, GENERATIONS)
    for zone in available_timezones():
        meant = Grant.parse({**dated, "timezone": zone}, GENERATIONS)
        assert meant.begins_at <= unsaid.begins_at < unsaid.ends_at <= meant.ends_at, zone


def test_hour_that_the_clocks_pass_twice(grant_mapping: dict[str, Any]) -> None:
    """A start in the hour that comes twice begins with the second and ends after the first."""
    twice = {**grant_mapping, "start": "2026-10-25T02:30:00", "days": 1, "timezone": "Europe/Berlin"}
    grant = Grant.parse(twice, GENERATIONS)
    assert grant.begins_at == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert grant.ends_at == datetime(2026, 10, 26, 0, 30, tzinfo=UTC)
    assert Grant.parse(grant.to_json(), GENERATIONS) == grant


@pytest.mark.parametrize("start", ["2026-13-01", "soon", "", 20260903, "9999-12-31", None, "2026-09-03T25:00"])
def test_what_is_no_start(grant_mapping: dict[str, Any], start: object) -> None:
    """A start must be a date of this century, with or without a time."""
    assert list(faults_of({**grant_mapping, "start": start})) == ["start"]


def test_a_timezone_is_met_with_the_nearest(grant_mapping: dict[str, Any]) -> None:
    """Timezones have names; a slip is met with the nearest."""
    assert faults_of({**grant_mapping, "timezone": "europe/berlin"})["timezone"].nearest == "Europe/Berlin"
