# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU seconds of the process that a DAG processor forks for a parse, for our DAG files and an empty DAG.

Run ``python benchmarks/parse_dags.py [--times 12]``. The parent is what ``airflow dag-processor`` is before its first
parse; a child parses the file, serializes its DAG and packs the answer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]
OURS = ("tpu_train", "tpu_nightly_retrain")
EMPTY = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

with DAG(dag_id="empty", schedule=None) as dag:
    EmptyOperator(task_id="one")
"""


def child(file: Path) -> None:
    """Do what the forked process does."""
    import structlog
    from airflow.dag_processing import processor
    from airflow.sdk.execution_time import comms
    from pydantic import TypeAdapter

    TypeAdapter[Any](processor.ToDagProcessor)
    fields: Mapping[str, Any] = {"file": str(file), "bundle_path": file.parent, "bundle_name": "x"}
    found = processor._parse_file(processor.DagFileParseRequest(**fields), structlog.get_logger())
    assert found is not None
    assert not found.import_errors, found.import_errors
    comms._RequestFrame(id=0, body=found.model_dump()).as_bytes()


def cpu_seconds(file: Path) -> float:
    """Fork, parse, and count."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            child(file)
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=12)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"AIRFLOW_HOME": folder, "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins")}
        os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR", "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        import structlog
        from airflow.dag_processing import manager, processor
        from airflow.jobs.job import Job

        assert manager
        Job()  # the first thing that the command makes; it tells the listeners
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY)
        base = 0.0
        for file in (empty, *(ROOT / "dags" / f"{name}.py" for name in OURS)):
            processor._pre_import_airflow_modules(str(file), structlog.get_logger())
            found = statistics.median(cpu_seconds(file) for _ in range(given.times))
            base = base or found
            print(f"{file.stem:<20} {found:.3f} CPU-s, {found / base:.2f} of the empty DAG", flush=True)


if __name__ == "__main__":
    main()
