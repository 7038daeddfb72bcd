"""What a run says of itself."""

from __future__ import annotations

import logging

import pytest

from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from tests.airflow_tpu.cloud_env import FORM, KEY, ROOT, CloudEnv
from tests.airflow_tpu.core.made_ledger import NOW, closed, opened
from tests.airflow_tpu.identities import AIRFLOW


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


def test_the_damage_of_another_run_stops_no_report(env: CloudEnv, caplog: pytest.LogCaptureFixture) -> None:
    """A record of another run that cannot be read is named in the log, and the run is reported without it."""
    record(env, KEY)
    env.storage.write_json(f"{ROOT}/ledger/incarnations/other-1/opened.json", {"event": "opened", "version": 1})
    with caplog.at_level(logging.WARNING):
        assert RunContext(KEY, FORM, Connections()).usage(NOW).covered.chip_hours == 6
    assert "other-1/opened.json is damaged" in caplog.text
