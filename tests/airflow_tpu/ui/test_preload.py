# SPDX-License-Identifier: Apache-2.0
"""What Airflow's processes load before they fork: a parse of a DAG file then loads nothing of ours once more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LOADED = """
import json, runpy, sys
import airflow.dag_processing.manager
from airflow.jobs.job import Job
from airflow_tpu.ui import preload

def ours():
    return {name for name in sys.modules if name.startswith("airflow_tpu")}

preload.on_starting(object())
found = [len(ours() & {"airflow_tpu.task_groups", "airflow_tpu.nightly"})]
Job()
for file in sys.argv[1:]:
    before = ours()
    runpy.run_path(file)
    found.append(sorted(ours() - before))
print(json.dumps(found))
"""


def test_job_loads_what_dag_files_need(tmp_path: Path) -> None:
    """A scheduler or a DAG processor loads it when it begins, through the plugin; what is no such process does not."""
    settings = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins")}
    dags = sorted((ROOT / "dags").glob("tpu_*.py"))
    line = [sys.executable, "-c", LOADED, *map(str, dags)]
    done = subprocess.run(line, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [0, *([] for _ in dags)]
