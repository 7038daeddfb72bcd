# SPDX-License-Identifier: Apache-2.0
"""What Airflow's own plugin loader makes of the plugins folder."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"

# Runs in a process of its own: the loader changes sys.modules and sys.path for good.
PROBE = """
import json, pkgutil, sys
from airflow import plugins_manager
plugins_manager.ensure_plugins_loaded()
import airflow_tpu
for module in pkgutil.walk_packages(airflow_tpu.__path__, "airflow_tpu."):
    if not module.name.startswith("airflow_tpu._include"):
        __import__(module.name)
modules = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
print("PROBE", json.dumps({"errors": plugins_manager.get_import_errors(), "modules": modules}))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Import errors and modules of a fresh Airflow process that has this plugins folder, the package imported."""
    home = tmp_path_factory.mktemp("airflow")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONPATH"))}
    environment |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    command = [sys.executable, "-c", PROBE]
    probe = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True)
    assert probe.returncode == 0, probe.stderr
    (line,) = (line for line in probe.stdout.splitlines() if line.startswith("PROBE "))
    result: dict[str, Any] = json.loads(line.removeprefix("PROBE "))
    return result


def ours(loaded: dict[str, Any]) -> dict[str, str]:
    """Modules whose file is in the plugins folder, by name."""
    return {name: file for name, file in loaded["modules"].items() if file and Path(file).is_relative_to(PLUGINS)}


def test_the_plugins_folder_loads_without_error(loaded: dict[str, Any]) -> None:
    """Airflow reports no import error for the plugins folder."""
    assert loaded["errors"] == {}


def test_no_module_of_the_package_runs_twice(loaded: dict[str, Any]) -> None:
    """Each file of the package is in the process once, under its full name, so that a class exists once."""
    modules = ours(loaded)
    assert "airflow_tpu" in modules
    assert len(set(modules.values())) == len(modules)
    package = {name for name, file in modules.items() if Path(file).is_relative_to(PLUGINS / "airflow_tpu")}
    assert {name for name in package if name.split(".")[0] != "airflow_tpu"} == set()


def test_the_standard_library_stays_intact(loaded: dict[str, Any]) -> None:
    """Python's own logging is still Python's after the plugins are loaded."""
    assert loaded["modules"]["logging"] == logging.__file__
