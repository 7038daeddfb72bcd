# SPDX-License-Identifier: Apache-2.0
"""One private Airflow home per test process, chosen before anything imports Airflow."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.airflow_tpu.identities import AIRFLOW

ROOT = Path(__file__).resolve().parent.parent

# Airflow reads its configuration when it is first imported, so this cannot wait for a fixture.
_HOME = tempfile.TemporaryDirectory(prefix="airflow-tpu-tests-")
os.environ.update(
    AIRFLOW_HOME=_HOME.name,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
    AIRFLOW__CORE__PLUGINS_FOLDER=str(ROOT / "plugins"),
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME.name}/airflow.db",
    AIRFLOW_VAR_AIRFLOW_TPU_IDENTITY=AIRFLOW,
    AIRFLOW__AIRFLOW_TPU__GRANT="local.yaml",
    AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS="240",
    AIRFLOW__AIRFLOW_TPU__EVENT_HOLD_SECONDS="0.1",
    AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS="0.1",
)

# How long an example takes says something of the machine, nothing of the code. Nothing is remembered from one run to
# the next; a failure prints what repeats it. `--hypothesis-profile soak` tries ten times as many examples.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None, print_blob=True
)
settings.register_profile("soak", settings.get_profile("patient"), max_examples=1000)
settings.load_profile("patient")


LONGEST = (
    "airflow/test_processes.py",
    "faults/test_matrix.py",
    "dags/test_interruptions.py",
    "airflow_tpu/ui/test_ui_browser.py",
    "train/test_digits_resume.py",
    "frameworks/test_tensorflow.py",
    "frameworks/test_projects.py",
    "scripts/test_up.py",
    "scripts/test_demo.py",
    "airflow_tpu/lifecycle/training/test_follow.py",
    "dags/test_nightly_dag.py",
    "dags/test_resume_dag.py",
    "dags/test_refusals.py",
    "dags/test_composer_layout.py",
    "docs/test_commands.py",
    "scripts/test_deploy_composer.py",
    "faults/test_interleavings.py",
    "remote/commands/test_restore.py",
)
"""Files that take longest: begun first, none of them is what everybody waits for at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; with xdist that needs ``--no-loadscope-reorder``."""
    ranks = {ROOT / "tests" / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's metadata database, once per process."""
    from airflow.utils.db import initdb

    initdb()
