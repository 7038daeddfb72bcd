# SPDX-License-Identifier: Apache-2.0
"""The project's DAG files, and copies that differ from them in what one test needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.scripts.whole_chain import ROOT

TRAIN = "tpu_train"
WORKING = "tpu_train_working"
"""The whole training is followed in the worker; no task is deferred."""
PAUSED = "tpu_train_paused"
"""It has a deadline alert every 20 seconds."""
BROKEN = "tpu_train_broken"
"""It has them too, and will not be whole to the end."""
REMOVED = "tpu_train_removed"
"""It will not be there to the end."""
CELERY = "tpu_train_celery"
"""Its tasks are run by Celery."""
TIMED = "tpu_train_timed"
"""Its train task has an execution timeout of seconds."""
OVERRUN = "tpu_train_overrun"
"""Its runs have a timeout, after which Airflow starts no task any more, and it has the alerts."""
MAPPED = "tpu_train_mapped"
"""Three sessions of a mapped group."""
CHAMPION = "on_new_champion"
"""An example of the documentation, which an asset event starts."""
NIGHTS = "nights"
"""A nightly retraining, for backfills."""
REAPER = "tpu_reaper"

Change = tuple[str, str]
_MANY: Change = ("max_active_runs=4", "max_active_runs=32")
_AT_LAST = "from airflow_tpu.task_groups import tpu_session\n"
_IN_WORKER: Change = (
    _AT_LAST,
    f'{_AT_LAST}import os\nos.environ["AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS"] = "3600"\n',
)
_SOON: Change = (
    _AT_LAST,
    f"{_AT_LAST}from airflow_tpu import deadlines\nfrom datetime import timedelta\n"
    "deadlines.LADDER, deadlines.SLACK = [timedelta(seconds=20 * n) for n in range(1, 31)], timedelta()\n",
)
_TIMEOUT: Change = (
    'task_id="train", **session',
    'task_id="train", execution_timeout=timedelta(seconds=60), **session',
)
_BY_CELERY: Change = (
    "    params=train_params(),\n",
    '    params=train_params(),\n    default_args={"executor": "CeleryExecutor"},\n',
)
_RUN_TIMEOUT: Change = ("    catchup=False,\n", "    catchup=False,\n    dagrun_timeout=timedelta(seconds=120),\n")
_TIMEDELTA: Change = ("from airflow.sdk import DAG\n", "from airflow.sdk import DAG\nfrom datetime import timedelta\n")
_BY_HAND: Change = ('schedule="*/15 * * * *"', "schedule=None")


def write(folder: Path) -> None:
    """Write all of them into a DAG folder."""
    _write(folder, TRAIN, TRAIN, _MANY)
    _write(folder, TRAIN, WORKING, _MANY, _IN_WORKER)
    _write(folder, TRAIN, PAUSED, _SOON)
    _write(folder, TRAIN, REMOVED)
    _write(folder, TRAIN, BROKEN, _SOON)
    _write(folder, TRAIN, CELERY, _BY_CELERY, _IN_WORKER)
    _write(folder, TRAIN, TIMED, _IN_WORKER, _TIMEDELTA, _TIMEOUT)
    _write(folder, TRAIN, OVERRUN, _SOON, _RUN_TIMEOUT)
    _write(folder, REAPER, REAPER, _BY_HAND)
    for name in (MAPPED, NIGHTS):
        shutil.copy(Path(__file__).parent / "files" / f"{name}.py", folder)
    shutil.copy(ROOT / "docs" / "examples" / f"{CHAMPION}.py", folder)


def _write(folder: Path, original: str, dag: str, *changes: Change) -> None:
    text = (ROOT / "dags" / f"{original}.py").read_text(encoding="utf-8")
    for old, new in ((f'dag_id="{original}"', f'dag_id="{dag}"'), *changes):
        assert text.count(old) == 1, f"{original}.py no longer has one {old!r}"
        text = text.replace(old, new)
    (folder / f"{dag}.py").write_text(text, encoding="utf-8")
