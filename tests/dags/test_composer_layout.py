# SPDX-License-Identifier: Apache-2.0
"""The layout that Cloud Composer gives the project: a wheel, a dags folder with include/ in it, no plugins folder.

What a checkout offers is taken away: these processes see neither ``plugins/`` nor ``include/`` of the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import names_left, object_names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TRIGGERS = """
import airflow_tpu.deadlines, airflow_tpu.triggers.run, airflow_tpu.triggers.tpu
print(airflow_tpu.triggers.run.__file__)
"""
PLUGINS = """
from airflow import plugins_manager
from airflow.providers_manager import ProvidersManager
found = [plugin.name for plugin in plugins_manager._get_plugins()[0]]
manager = ProvidersManager()
hook = manager.hooks["google_cloud_tpu"]
fields = [name for name in manager.connection_form_widgets if "google_cloud_tpu" in name]
print("airflow_tpu" in str(found), "airflow-provider-tpu" in manager.providers, hook.hook_name, len(fields))
"""


@dataclass(frozen=True)
class Layout:
    """Folders of one environment.

    :param root: everything below it.
    :param wheel: what the wheel has been unpacked to, with its metadata.
    :param dags: the synchronised folder.
    """

    root: Path
    wheel: Path
    dags: Path

    def environment(self) -> dict[str, str]:
        """The environment of an Airflow process there."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.wheel),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.root / "plugins"),
            "AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR": str(self.dags / "tpu" / "include"),
            "AIRFLOW__AIRFLOW_TPU__GRANT": "local.yaml",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([self._bundle()]),
        }

    def _bundle(self) -> dict[str, object]:
        classpath = "airflow.dag_processing.bundles.local.LocalDagBundle"
        return {"name": "dags-folder", "classpath": classpath, "kwargs": {"path": str(self.dags)}}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python there, far from the checkout."""
        command = [sys.executable, *arguments]
        options = {"env": self.environment(), "cwd": "/", "capture_output": True, "text": True}
        return subprocess.run(command, check=False, **options)  # type: ignore[call-overload,no-any-return]

    def files(self) -> dict[str, bytes]:
        """What lies in the synchronised folder and in the installed package."""
        roots = (self.dags, self.wheel)
        paths = [Path(folder, name) for root in roots for folder, _, names in os.walk(root) for name in names]
        return {str(path): path.read_bytes() for path in paths if path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The wheel unpacked as pip does it, and the folders as scripts/deploy-composer fills them."""
    root = tmp_path_factory.mktemp("composer")
    found = Layout(root, root / "site", root / "gcs" / "dags")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(root / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (root / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(found.wheel)
    (root / "plugins").mkdir()
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dags", found.dags / "tpu", ignore=without_caches)
    without_program = shutil.ignore_patterns("__pycache__", "remote")
    shutil.copytree(ROOT / "include", found.dags / "tpu" / "include", ignore=without_program)
    shutil.copy(ROOT / "scripts" / "composer" / "airflowignore", found.dags / "tpu" / ".airflowignore")
    return found


def test_triggerer_finds_its_triggers_in_the_wheel(layout: Layout) -> None:
    """Without dags and plugins folders, triggers and deadline callbacks are imported from the installed package."""
    shown = layout.python("-c", TRIGGERS)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip().startswith(str(layout.wheel))


def test_airflow_sees_one_provider_and_one_plugin(layout: Layout) -> None:
    """The wheel's entry points register the provider, its connection form and the usage page."""
    shown = layout.python("-c", PLUGINS)
    assert shown.stdout.splitlines()[-1:] == ["True True Google Cloud TPU 13"], shown.stderr


def test_training_scripts_are_no_dags(layout: Layout) -> None:
    """The DAG processor finds every DAG without an import error, and looks at none of the training scripts."""
    code = (
        "from airflow.dag_processing.dagbag import DagBag; bag = DagBag(); print(bag.import_errors, sorted(bag.dags))"
    )
    shown = layout.python("-c", code)
    last = shown.stdout.splitlines()[-1]
    assert last.startswith("{} ["), shown.stdout + shown.stderr
    assert {"tpu_train", "tpu_reaper", "tpu_nightly_retrain"} <= set(json.loads(last[3:].replace("'", '"')))


def test_the_main_job_runs_there(layout: Layout, cloud: BackgroundCloud, database: None, tmp_path: Path) -> None:
    """A run trains, copies and leaves nothing; nothing is written there or into the package."""
    before = layout.files()
    outcome = tmp_path / "outcome.json"
    conf = json.dumps({"script": "hello.py", "zone": "us-central1-f"})
    dag = str(layout.dags / "tpu" / "tpu_train.py")
    done = layout.python(str(ROOT / "scripts" / "run_dag.py"), dag, str(outcome), conf)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(outcome.read_text())["state"] == "success"
    assert any(name.endswith("output/hello-0.txt") for name in object_names(cloud))
    assert names_left(cloud) == []
    assert layout.files() == before
