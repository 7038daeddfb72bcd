# SPDX-License-Identifier: Apache-2.0
"""What a run says of itself."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from airflow_tpu.core.grant.alternatives import Alternative
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from tests.airflow_tpu.cloud_env import FORM, KEY, ROOT, CloudEnv, context
from tests.airflow_tpu.core.made_ledger import NOW, closed, opened
from tests.airflow_tpu.identities import AIRFLOW

FIRST = Alternative("us-central1-f", "v2-8", "tpu-vm-tf-2.18.0-pjrt", Tier.ON_DEMAND)
"""The first row of the local cloud's grant."""


def record(env: CloudEnv, key: RunKey) -> None:
    """One TPU of a run, at the same time as those of all others."""
    names = {"run": key.digest, "dag_id": key.dag_id, "run_id": key.run_id}
    event = opened(key.node_id(1), **names)
    env.ledger.open(event)
    env.ledger.close(event, closed(event.node_id))


def test_a_run_is_judged_beside_the_others(env: CloudEnv) -> None:
    """Of eight devices at once of a row of five, three are one too many: their own reports say so."""
    keys = [RunKey(AIRFLOW, "tpu_train", f"manual__{number}") for number in range(8)]
    for key in keys:
        record(env, key)
    usages = [RunContext(key, FORM, Connections()).usage(NOW) for key in keys]
    assert [len(usage.rows) for usage in usages] == [1] * 8
    assert sum(usage.covered.chip_hours > 0 for usage in usages) == 5
    assert sum(usage.not_covered.chip_hours > 0 for usage in usages) == 3


def test_the_grant_fills_what_is_left_out(env: CloudEnv) -> None:
    """A script alone is a whole run, as a mapping and as JSON text: TPU and bucket are those that the form shows."""
    for conf in ({"script": "hello.py"}, '{"script": "hello.py"}'):
        found = RunContext(KEY, conf, Connections()).conf
        assert Alternative.asked(found) == FIRST
        assert found.artifacts_uri == f"{ROOT}/runs"


def test_a_grant_that_changes_moves_no_run(env: CloudEnv, grant: Grant) -> None:
    """From its lease to the end of that a run keeps what the grant has filled in; the next run follows the grant."""
    CloudTPULeaseOperator(task_id="lease", conf={"script": "hello.py"}, poll_interval=0.1).execute(context())
    renewed = replace(grant, allowances=grant.allowances[::-1])

    def asked(**more: str) -> str:
        return str(Alternative.asked(RunContext(KEY, {"script": "hello.py", **more}, Connections(), renewed).conf))

    assert asked() == "on-demand v2-8 in us-central1-f"
    assert asked(zone="europe-west4-a") == "spot v6e-1 in europe-west4-a"
    env.runs.release(KEY)
    assert asked() == "spot v6e-1 in us-east1-d"


def test_a_field_that_no_row_fits_is_refused_with_the_rows(env: CloudEnv) -> None:
    """What cannot be taken from the grant is one error with everything else that is wrong."""
    asked = {"script": "hello.py", "accelerator_type": "v3-8", "seed": -1}
    with pytest.raises(ConfigError) as caught:
        CloudTPUCheckGrantOperator(task_id="check_grant", conf=asked).execute(context())
    assert [fault.field for fault in caught.value.faults] == ["seed", "zone", "accelerator_type"]
    assert "no row of the grant fits, so give zone; allowed: 5 on-demand v2-8 devices" in str(caught.value)


def test_the_damage_of_another_run_stops_no_report(env: CloudEnv, caplog: pytest.LogCaptureFixture) -> None:
    """A record of another run that cannot be read is named in the log, and the run is reported without it."""
    record(env, KEY)
    env.storage.write_json(f"{ROOT}/ledger/incarnations/other-1/opened.json", {"event": "opened", "version": 1})
    with caplog.at_level(logging.WARNING):
        assert RunContext(KEY, FORM, Connections()).usage(NOW).covered.chip_hours == 6
    assert "other-1/opened.json is damaged" in caplog.text
