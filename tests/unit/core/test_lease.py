"""The lease: one right, one token, and what is known of each life."""

from __future__ import annotations

import datetime as dt
import json

from airflow_tpu.core.lease import Lease
from airflow_tpu.core.ledger import TimeSource
from airflow_tpu.core.names import RunKey

NOW = dt.datetime(2026, 11, 27, 1, 2, 3, tzinfo=dt.UTC)
LEASE = Lease(RunKey("train", "manual__2026"), "token-1", NOW, "us-central1-f")


def test_json_form_reads_back_equal() -> None:
    """Everything survives the object in the bucket, through real JSON text."""
    lease = LEASE.next_incarnation().next_attempt("train-1").with_life("train-1", ready_at=NOW, source=TimeSource.API)
    assert Lease.from_json(json.loads(json.dumps(lease.to_json()))) == lease


def test_renewing_changes_the_token_and_keeps_the_lives() -> None:
    """A newer attempt fences the older one off and still knows the TPU that is there."""
    lease = LEASE.next_incarnation().with_life("train-1", training_seconds=5.0)
    renewed = lease.renewed("token-2", NOW)
    assert (renewed.token, renewed.incarnation, renewed.life("train-1").training_seconds) == ("token-2", 1, 5.0)


def test_next_incarnation_never_reuses_a_number_that_the_project_knows() -> None:
    """A lost lease object must not lead to a name that a husk still holds."""
    assert LEASE.next_incarnation(at_least=4).incarnation == 5
    assert LEASE.next_incarnation().next_incarnation().incarnation == 2


def test_life_of_an_unknown_node_is_empty() -> None:
    """What was never noted is unknown, not zero by accident of a key error."""
    assert LEASE.life("other").ready_at is None
