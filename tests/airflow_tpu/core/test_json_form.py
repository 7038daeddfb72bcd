# SPDX-License-Identifier: Apache-2.0
"""The JSON form: the same value is the same text, and what is read is checked."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ArtifactError, LedgerError, UnknownVersion
from tests.airflow_tpu.identities import AIRFLOW

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Sample:
    """One field of each kind."""

    key: RunKey
    tier: Tier
    at: dt.datetime
    seconds: float = 0.0
    tried: tuple[Tier, ...] = ()
    lives: Mapping[str, RunKey] = field(default_factory=dict)
    until: dt.datetime | None = None
    done: bool = False


SAMPLE = Sample(
    RunKey(AIRFLOW, "d", "r"),
    Tier.SPOT,
    NOON,
    1.5,
    (Tier.SPOT, Tier.ON_DEMAND),
    {"n-1": RunKey(AIRFLOW, "d", "r", 2)},
    NOON,
)
FORM = json_form.StoredForm("sample", Sample, version=3, tags={"event": "made"})


def test_every_kind_of_field_is_read_back() -> None:
    """Enums, instants, tuples, maps and values in values come back from real JSON text as they were."""
    text = json.dumps(json_form.to_json(SAMPLE))
    assert json_form.from_json(Sample, json.loads(text)) == SAMPLE


def test_the_same_value_is_the_same_text() -> None:
    """The order of a map and the timezone of an instant make no difference, so that a repeated write is recognized."""
    seoul = Sample(
        SAMPLE.key, SAMPLE.tier, NOON.astimezone(ZoneInfo("Asia/Seoul")), lives={"b": SAMPLE.key, "a": SAMPLE.key}
    )
    utc = Sample(SAMPLE.key, SAMPLE.tier, NOON, lives={"a": SAMPLE.key, "b": SAMPLE.key})
    assert FORM.to_bytes(seoul) == FORM.to_bytes(utc)
    assert b" " not in FORM.to_bytes(utc).replace(b"us-central", b"")


@pytest.mark.parametrize(
    "change",
    [
        {"tier": "free"},
        {"at": "2026-11-28T12:00:00"},
        {"at": None},
        {"seconds": "1.5"},
        {"seconds": True},
        {"done": 1},
        {"tried": "spot"},
        {"key": {"dag_id": "d"}},
        {"key": {"dag_id": 1, "run_id": "r", "map_index": -1}},
        {"lives": []},
        {"surprise": 1},
    ],
    ids=str,
)
def test_what_is_not_of_the_class_is_refused(change: dict[str, Any]) -> None:
    """A field that is missing, unknown, or of another type is damage, never a guess."""
    with pytest.raises(json_form.NotOfThisForm):
        json_form.from_json(Sample, {**json_form.to_json(SAMPLE), **change})
    with pytest.raises(LedgerError, match="the sample gs://b/s is damaged"):
        FORM.from_json({**FORM.to_json(SAMPLE), **change}, "gs://b/s")


def test_stored_form_is_read_back_with_its_version() -> None:
    """The version and the tags stand beside the fields."""
    data = FORM.to_json(SAMPLE)
    assert (data["version"], data["event"]) == (3, "made")
    assert FORM.from_json(json.loads(json.dumps(data))) == SAMPLE


@pytest.mark.parametrize("version", [4, 2, "3", None, True])
def test_another_version_is_named_and_not_read(version: object) -> None:
    """The error names the object and its version, whatever else the object holds."""
    with pytest.raises(
        UnknownVersion, match=r"sample gs://b/s has version .*, and this release reads version 3"
    ) as caught:
        FORM.from_json({"version": version, "anything": []}, "gs://b/s")
    assert (caught.value.name, caught.value.version) == ("gs://b/s", version)


@pytest.mark.parametrize("data", [None, [], "x", {"version": 3}, {"version": 3, "event": "other"}], ids=str)
def test_damage_is_an_error_of_the_kind_of_object(data: object) -> None:
    """What is of this version and cannot be read is reported by the error that the form names."""
    form = json_form.StoredForm("sample", Sample, version=3, tags={"event": "made"}, damaged=ArtifactError)
    with pytest.raises(ArtifactError, match="is damaged"):
        form.from_json(data)


def test_no_naive_instant_and_no_nan_is_written() -> None:
    """An instant without a timezone would be another one elsewhere, and NaN is no JSON."""
    with pytest.raises(ValueError, match="timezone"):
        json_form.to_json(Sample(SAMPLE.key, Tier.SPOT, NOON.replace(tzinfo=None)))
    with pytest.raises(ValueError, match="JSON"):
        FORM.to_bytes(Sample(SAMPLE.key, Tier.SPOT, NOON, seconds=float("nan")))
