# SPDX-License-Identifier: Apache-2.0
"""Dates of a DAG run in the texts of the form and in the script's environment."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.core.request.run_dates import RunDates, with_dates
from airflow_tpu.errors import ConfigError

NIGHT = dt.datetime(2026, 11, 27, 1, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
DATES = RunDates(NIGHT, NIGHT, NIGHT + dt.timedelta(days=1))


def test_texts_name_dates() -> None:
    """Each name is replaced, in UTC, wherever it stands; other fields and texts stay."""
    form = {
        "data_uri": "gs://days/{{ ds }}/{{ds_nodash}}",
        "arguments": "--since {{ data_interval_start }} --until {{ data_interval_end }} {x} $TRC_SEED",
        "seed": 3,
    }
    assert with_dates(form, DATES) == {
        "data_uri": "gs://days/2026-11-26/20261126",
        "arguments": "--since 2026-11-26T23:30:00+00:00 --until 2026-11-27T23:30:00+00:00 {x} $TRC_SEED",
        "seed": 3,
    }


@pytest.mark.parametrize("name", ["conn.google.password", "var.value.secret", "params", "", "ds | upper", "7*7"])
def test_nothing_else_can_be_named(name: str) -> None:
    """Connections, variables and expressions are refused with what can be named."""
    with pytest.raises(ConfigError) as caught:
        with_dates({"data_uri": f"gs://days/{{{{ {name} }}}}"}, DATES)
    (fault,) = caught.value.faults
    assert (fault.field, "ds" in fault.allowed) == ("data_uri", True)


def test_a_near_name_is_proposed() -> None:
    """A typing error is answered with the name that was meant."""
    with pytest.raises(ConfigError) as caught:
        with_dates({"arguments": "--date {{ ds_nodsh }}"}, DATES)
    assert caught.value.faults[0].nearest == "ds_nodash"


def test_a_run_without_a_date_says_so() -> None:
    """A run that a person has triggered without a logical date does not train on a date of ours."""
    with pytest.raises(ConfigError, match="this run has none"):
        with_dates({"arguments": "--date {{ ds }}"}, RunDates())


def test_an_open_brace_is_no_date() -> None:
    """What does not close is named as it stands."""
    with pytest.raises(ConfigError, match="without the closing braces"):
        with_dates({"arguments": "--date {{ ds"}, DATES)


def test_the_environment_of_a_sensitive_field_is_not_shown() -> None:
    """The message about a variable does not show what else is in the field."""
    with pytest.raises(ConfigError) as caught:
        with_dates({"environment": "KEY=hush\nDAY={{ day }}"}, DATES)
    assert "hush" not in str(caught.value)


def test_the_script_finds_the_dates() -> None:
    """Every variable is there; the ones that a run does not have are empty."""
    assert DATES.environment == {
        "TRC_LOGICAL_DATE": "2026-11-26T23:30:00+00:00",
        "TRC_DATA_INTERVAL_START": "2026-11-26T23:30:00+00:00",
        "TRC_DATA_INTERVAL_END": "2026-11-27T23:30:00+00:00",
    }
    assert set(RunDates().environment.values()) == {""}
