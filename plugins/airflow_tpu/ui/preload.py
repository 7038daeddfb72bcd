# SPDX-License-Identifier: Apache-2.0
"""Load once what Airflow's processes would load again for every parse of a DAG file, and for every task.

The DAG processor forks a process for each parse, the scheduler (LocalExecutor) one for each task: what they have loaded
the fork has. Airflow does so for its own modules (``[dag_processor] parsing_pre_import_modules``).
"""

from __future__ import annotations

import importlib

from airflow.listeners import hookimpl

MODULES = (
    "airflow_tpu.nightly",
    "airflow_tpu.operators.grant_watch",
    "airflow_tpu.operators.reaper",
    "airflow_tpu.tpu_run",
)
"""What the DAG files of the project import, and with it everything that those need."""

_JOBS = "airflow.jobs.job"


@hookimpl
def on_starting(component: object) -> None:
    """Load the modules where a scheduler, a DAG processor or a triggerer begins; a task that starts loads its own."""
    if type(component).__module__ == _JOBS:
        for name in MODULES:
            importlib.import_module(name)
