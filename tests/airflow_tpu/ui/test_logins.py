# SPDX-License-Identifier: Apache-2.0
"""SSH commands on the usage page: of running TPUs of ours, for those who may see them."""

from __future__ import annotations

from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.ui.logins import logins
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.ui.made import ALL, KEY, node, record, snapshot

NODE = KEY.node_id(1)


def names(known: Snapshot, reader: Reader = ALL) -> list[str]:
    """The TPUs that have a command."""
    return [login["name"] for login in logins(known, reader)]


def test_a_running_tpu_of_ours_has_a_command() -> None:
    """The command names the TPU, its zone and its project, so that gcloud need not guess."""
    (found,) = logins(snapshot([node(NODE, KEY)], records=[record()]), ALL)
    words = f"gcloud compute tpus tpu-vm ssh {NODE} --zone=us-central1-f --project=my-project --worker=0"
    assert found == {"name": NODE, "command": words}


def test_a_sick_tpu_has_one_too() -> None:
    """An unhealthy TPU has a command too: a login shows why it is unhealthy."""
    assert names(snapshot([node(NODE, KEY, health="UNHEALTHY_TENSORFLOW")], records=[record()])) == [NODE]


def test_what_does_not_run_or_is_not_ours_has_none() -> None:
    """A TPU that is being made or was taken away cannot be logged in to, and a foreign one is its owner's business."""
    other = [node("annas"), node(KEY.node_id(2), KEY, state="CREATING"), node(KEY.node_id(3), KEY, state="PREEMPTED")]
    assert names(snapshot([*other, node(NODE, KEY)], records=[record()])) == [NODE]
    assert names(snapshot(project=None)) == []


def test_a_tpu_of_a_hidden_dag_has_none() -> None:
    """The command would name the DAG."""
    secret = RunKey(AIRFLOW, "secret_dag", "manual__1")
    nodes = [node(secret.node_id(1), secret), node(NODE, KEY)]
    known = snapshot(nodes, records=[record(secret), record()])
    assert names(known, Reader({"tpu_train"})) == [NODE]
    assert names(known) == sorted([secret.node_id(1), NODE])
    assert names(snapshot([node(NODE, KEY)]), Reader({"tpu_train"})) == []
