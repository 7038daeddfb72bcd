# SPDX-License-Identifier: Apache-2.0
"""Run one DAG from its file in this process, deferrals included, and record how every task ended.

Usage: ``run_dag.py DAG_FILE OUTCOME_JSON [CONF_JSON]``. It is ``dag.test()`` of Airflow: real operators, real triggers,
real retries, but no scheduler, api-server or triggerer. Exit code 0 means that the DAG run succeeded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun


def main(dag_file: str, outcome_file: str, conf: str = "{}") -> int:
    """Load the file, run its only DAG and write the outcome."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_file)
    if bag.import_errors or len(bag.dags) != 1:
        print(f"{dag_file} does not define exactly one DAG: {bag.import_errors or sorted(bag.dags)}", file=sys.stderr)
        return 2
    (dag,) = bag.dags.values()
    dag.deadline = None  # dag.test() ends with an error over it: apache/airflow issue 73428
    run = dag.test(run_conf=json.loads(conf))
    result = outcome(run)
    Path(outcome_file).write_text(json.dumps(result, indent=2), encoding="utf-8")
    return 0 if result["state"] == "success" else 1


def outcome(run: DagRun) -> dict[str, Any]:
    """What a summary needs to know about the run, in plain JSON."""
    tasks = sorted(run.get_task_instances(), key=lambda ti: (ti.start_date is None, ti.start_date))
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "state": str(run.state),
        "tasks": [
            {"task_id": ti.task_id, "state": str(ti.state), "tries": ti.try_number, "seconds": ti.duration}
            for ti in tasks
        ],
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
