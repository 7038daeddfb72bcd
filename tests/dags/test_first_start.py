# SPDX-License-Identifier: Apache-2.0
"""The first run in an Airflow that has no identity yet."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.tpu.identity import VARIABLE, checked
from airflow_tpu.core.tpu.labels import RunKey
from localcloud.testing import BackgroundCloud
from tests.dags.evidence import check_books, events, names_left, objects

pytestmark = pytest.mark.slow


def test_the_first_run_makes_the_identity_and_keeps_it_in_the_metadata_database(
    cloud: BackgroundCloud, run_dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task of the run finds the one that the first has made, as a Variable; the bucket knows it by name."""
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session

    monkeypatch.delenv("AIRFLOW_VAR_AIRFLOW_TPU_IDENTITY")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__AIRFLOW_NAME", "laptop")
    done = run_dag(provisioning="node")
    with create_session() as session:
        kept = {row.key: row.val for row in session.query(Variable) if row.key.startswith(VARIABLE)}
        session.query(Variable).delete()
    assert (done.state, list(kept)) == ("success", [VARIABLE])
    identity = checked(kept[VARIABLE])
    (opened,) = events(cloud, "opened")
    assert opened["node_id"] == RunKey(identity, opened["dag_id"], opened["run_id"]).node_id(1)
    assert names_left(cloud) == []
    check_books(cloud)
    (name,) = (body for name, body in objects(cloud).items() if name.endswith(f"/airflows/{identity}.json"))
    assert '"laptop"' in str(name)
