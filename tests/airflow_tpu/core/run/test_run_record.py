# SPDX-License-Identifier: Apache-2.0
"""The run record: one lease with one token, and what is known of each life."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from airflow_tpu.core.grant.alternatives import Alternative, CapacitySearch
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.core.run.run_record import RUN_RECORD_FORM, Holder, Lease, RunRecord
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.identities import AIRFLOW

NOW = dt.datetime(2026, 11, 27, 1, 2, 3, tzinfo=dt.UTC)
RECORD = RunRecord(RunKey(AIRFLOW, "train", "manual__2026"), Lease("token-1", NOW), "us-central1-f")


def test_json_form_reads_back_equal() -> None:
    """Everything survives the object in the bucket, through real JSON text."""
    record = RECORD.next_incarnation().next_attempt(LastAttempt(node_id="train-1"), "train")
    record = record.with_life("train-1", ready_at=NOW, source=TimeSource.API).renewed("token-2", NOW, Holder(NOW, 1))
    record = record.next_attempt(LastAttempt(node_id="train-1", at=NOW, uri="gs://b/x", asked="a", code="c"), "test")
    alternative = Alternative("us-central1-a", "v3-8", "image", Tier.ON_DEMAND)
    record = replace(record, alternative=alternative, capacity_search=CapacitySearch(NOW, 2, (alternative,)))
    assert RUN_RECORD_FORM.from_json(json.loads(json.dumps(RUN_RECORD_FORM.to_json(record)))) == record


def test_renewing_changes_the_token_and_keeps_the_lives() -> None:
    """A newer attempt fences the older one off and still knows the TPU that is there."""
    record = RECORD.next_incarnation().with_life("train-1", training_seconds=5.0)
    renewed = record.renewed("token-2", NOW)
    assert (renewed.lease.token, renewed.incarnation, renewed.life("train-1").training_seconds) == ("token-2", 1, 5.0)


def test_each_training_has_attempts_of_its_own() -> None:
    """Numbers count from 1 for each, and their TPU counts the time of all that ran on it."""
    record = RECORD.next_attempt(LastAttempt(node_id="n"), "one").with_attempt("one", seconds=5.0, artifact_bytes=7)
    record = record.next_attempt(LastAttempt(node_id="n"), "two").next_attempt(LastAttempt(node_id="n"), "two")
    record = record.with_attempt("two", seconds=2.0, artifact_bytes=1)
    assert [record.last_attempt(name).number for name in ("one", "two", "three")] == [1, 2, 0]
    assert record.current == "two"
    assert (record.life("n").training_seconds, record.life("n").artifact_bytes) == (7.0, 8)


def test_next_incarnation_never_reuses_a_number_that_the_project_knows() -> None:
    """A lost lease object must not lead to a name that a terminated node still holds."""
    assert RECORD.next_incarnation(at_least=4).incarnation == 5
    assert RECORD.next_incarnation().next_incarnation().incarnation == 2


def test_life_of_an_unknown_node_is_empty() -> None:
    """What was never recorded is unknown, not zero."""
    assert RECORD.life("other").ready_at is None


LATER = NOW + dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        (Holder(NOW, 2), False),
        (Holder(NOW, 3), False),
        (Holder(LATER, 3), False),
        (Holder(LATER, 2), True),
        (Holder(NOW, 1), True),
        (None, False),
    ],
)
def test_only_the_same_dag_run_takes_a_living_lease_again(other: Holder | None, refused: bool) -> None:
    """A retry has number and start, a clear a higher number; everything else is another DAG run of these ids."""
    record = RECORD.renewed("token-2", NOW, Holder(NOW, 2))
    assert record.lease.is_held_against(other, NOW - dt.timedelta(seconds=1)) is refused
    assert not record.lease.is_held_against(other, NOW)


def test_lease_without_a_holder_refuses_nobody() -> None:
    """Without a recorded DAG run, no other run can be told apart from it."""
    assert not RECORD.lease.is_held_against(Holder(LATER), NOW - dt.timedelta(hours=1))
