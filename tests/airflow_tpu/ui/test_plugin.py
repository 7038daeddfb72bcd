# SPDX-License-Identifier: Apache-2.0
"""One page, from the plugins folder or from the installed package, never from both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
# In a process of its own: the loader changes sys.modules and sys.path for good.
PROBE = """
import json
from airflow import plugins_manager
found = [plugin for plugin in plugins_manager._get_plugins()[0] if plugin.name == "airflow_tpu"]
views = [view["name"] for view in plugins_manager._get_ui_plugins()[0]]
print("PROBE", json.dumps({
    "sources": [str(plugin.source) for plugin in found],
    "pages": views.count("TPU usage"),
    "errors": plugins_manager.get_import_errors(),
}))
"""


def install(site: Path) -> None:
    """What pip leaves behind: the package, and metadata with its entry points."""
    (site / "airflow_tpu").symlink_to(PLUGINS / "airflow_tpu")
    metadata = site / "airflow_provider_tpu-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-provider-tpu\nVersion: 9.9\n")
    (metadata / "entry_points.txt").write_text(
        "[airflow.plugins]\nairflow_tpu = airflow_tpu.ui.plugin:CloudTPUPlugin\n"
    )


def probe(home: Path, site: Path) -> tuple[dict[str, Any], str]:
    """What a fresh Airflow process has loaded, and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONPATH"))}
    environment |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(site),
    }
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("PROBE "))
    return json.loads(line.removeprefix("PROBE ")), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("installed", "source"),
    [(False, "$PLUGINS_FOLDER/airflow_tpu_plugin.py"), (True, "airflow-provider-tpu==9.9: ")],
)
def test_the_page_is_registered_once(tmp_path: Path, installed: bool, source: str) -> None:
    """The folder registers the page; beside the installed package it does nothing and says so, without an error."""
    site = tmp_path / "site"
    site.mkdir()
    if installed:
        install(site)
    found, printed = probe(tmp_path, site)
    assert (found["pages"], found["errors"]) == (1, {})
    assert [text.startswith(source) for text in found["sources"]] == [True]
    assert ("airflow-provider-tpu 9.9 registers the page 'TPU usage' already" in printed) is installed
