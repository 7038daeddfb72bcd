# SPDX-License-Identifier: Apache-2.0
"""What parsing a DAG file loads: Airflow forks a process for every parse, so each module is loaded again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORM = ROOT / "tests" / "dags" / "files" / "form_only.py"
PARSE = """
import json, os, runpy, sys
import airflow.dag_processing.dagbag, airflow.dag_processing.processor
from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TaskGroup
for file in sys.argv[1:]:
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        print(os.fdopen(reader).read())
        assert os.wait()[1] == 0
    else:
        before = set(sys.modules)
        runpy.run_path(file)
        os.write(writer, json.dumps(sorted(set(sys.modules) - before)).encode())
        os._exit(0)
"""
FORM_MODULES = {
    "catalogue": {"catalogue", "columns", "generations", "tables", "transfer_rates"},
    "grant": {"allowance", "alternatives", "grant"},
    "request": {"environment", "field_kinds", "fields", "form_fields", "paths", "type_and_zone"},
    "tpu": {"resource_name", "spec"},
}

NEVER = ("cli", "core.letter", "core.report", "hooks", "lifecycle", "triggers", "ui")
"""Folders of ours that no DAG file needs: what only a running task, the command line or the page uses."""

MOST = {
    "tpu_grant_watch": 16,
    "tpu_model_rollback": 19,
    "tpu_nightly_retrain": 76,
    "tpu_reaper": 15,
    "tpu_train": 70,
    "tpu_usage_report": 20,
}
"""How many of our modules each file loads at most; a smaller number is better."""

DAGS = sorted((ROOT / "dags").glob("*.py"))
Load = Callable[[Path], set[str]]


@pytest.fixture(scope="module")
def load() -> Load:
    """Modules that a process loads for one file, forked from one that has Airflow: what a DAG processor does."""
    files = [FORM, *DAGS]
    line = [sys.executable, "-c", PARSE, *map(str, files)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(zip(files, map(json.loads, done.stdout.splitlines()[-len(files) :]), strict=True))
    return lambda file: set(found[file])


def test_form_loads_its_table_the_catalogue_and_the_grant(load: Load) -> None:
    """Nothing of a run is loaded for the form, nor anything of another package."""
    core = {f"core.{folder}.{name}" for folder, names in FORM_MODULES.items() for name in names}
    core |= {"core", "core.backoff", *(f"core.{folder}" for folder in FORM_MODULES)}
    around = {"clients", "clients.airflow_state", "errors", "params", "settings", "stores", "stores.grants"}
    ours = {"airflow_tpu", *(f"airflow_tpu.{name}" for name in core | around)}
    assert {name for name in load(FORM) if name.startswith("airflow_tpu")} == ours
    assert foreign(load(FORM)) == set()


@pytest.mark.parametrize("file", DAGS, ids=lambda file: str(file.stem))
def test_dag_file_loads_no_more_than_it_needs(load: Load, file: Path) -> None:
    """It loads no other package, none of our folders that only a running task uses, and no more modules than before."""
    ours = {name.removeprefix("airflow_tpu.") for name in load(file) if name.startswith("airflow_tpu")}
    assert foreign(load(file)) == set()
    assert {name for name in ours for folder in NEVER if f"{name}.".startswith(f"{folder}.")} == set()
    assert len(ours) <= MOST[file.stem], sorted(ours)


def foreign(names: set[str]) -> set[str]:
    """Modules that are neither ours, nor Python's, nor Airflow's own."""
    known = {*sys.stdlib_module_names, "airflow_tpu"}
    return {name for name in names if name.split(".")[0] not in known and not name.startswith("airflow.sdk")}
