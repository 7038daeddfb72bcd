# SPDX-License-Identifier: Apache-2.0
"""A project lies in the DAG bundle of its run, at the version that the run began with."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.bundles.base import BaseDagBundle

from airflow_tpu import settings
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from airflow_tpu.lifecycle.source.home import Home, home_of
from airflow_tpu.stores.grants import load_catalogue
from tests.airflow_tpu.git_server import commit, git

PACKAGED = settings.package_include_dir() / "train"
ASKED = {"accelerator_type": "v2-8", "zone": "us-central1-f", "tier": "spot", "artifacts_uri": "gs://trc-local/runs"}
DEPLOYED = {
    "repo/train.py": "print('deployed')\n",
    "other/train.py": "\n",
    "trc/__init__.py": "\n",
    "packages.txt": "six\n",
}


class Checkout(BaseDagBundle):
    """A repository as a bundle: the files of one commit in a folder named after it, as Airflow's git bundle has them.

    :param repository: a local one.
    """

    supports_versioning = True

    def __init__(self, repository: Path, version: str, base: Path) -> None:
        super().__init__(name="project", version=version)
        self.base_dir = base
        self._root = base / "versions" / version
        if not self._root.exists():
            git(repository, "clone", "-q", str(repository), str(self._root))
            git(self._root, "checkout", "-q", version)

    @property
    def path(self) -> Path:
        """Folder of the DAG files."""
        return self._root / "dags"

    def get_current_version(self) -> str | None:
        """The commit."""
        return self.version

    def refresh(self) -> None:
        """A commit does not change."""


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An include directory that is newer, or older, than every version of the bundle."""
    train = tmp_path / "deployed" / "train"
    for name, content in DEPLOYED.items():
        (train / name).parent.mkdir(parents=True, exist_ok=True)
        (train / name).write_text(content)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(train.parent))
    return train


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Checkout, Checkout]:
    """Two versions of a bundle, checked out beside one another."""
    folder, base = tmp_path / "repository", tmp_path / "bundles" / "project"
    files = {"dags/dag.py": "", "include/train/repo/train.py": "print('first')\n", "include/train/alone.py": "\n"}
    first = commit(folder, files)
    second = commit(folder, {"include/train/repo/train.py": "print('second')\n"})
    return Checkout(folder, first, base), Checkout(folder, second, base)


def asked(**form: str) -> RunConf:
    """What a form says."""
    return RunConf.parse({**ASKED, **form}, load_catalogue())


@pytest.mark.parametrize("number", [0, 1], ids=["the version of the run", "the newest"])
@pytest.mark.parametrize(
    "form", [{"source": "repo", "command": "python train.py"}, {"script": "repo/train.py"}, {"script": "alone.py"}]
)
def test_a_project_is_that_of_its_version(
    deployed: Path, versions: tuple[Checkout, Checkout], form: dict[str, str], number: int
) -> None:
    """Whatever is deployed, and whatever other version is on the worker's disk."""
    bundle = versions[number]
    expected = bundle.path.parent / "include" / "train"
    assert home_of(asked(**form), bundle) == Home(expected, (deployed, PACKAGED), str(bundle.version))


def test_its_files_travel_and_what_it_lacks_is_deployed(deployed: Path, versions: tuple[Checkout, Checkout]) -> None:
    """Two versions are two digests; the library and common requirements come from what is deployed."""
    found = []
    for bundle in versions:
        conf = asked(source="repo", command="python train.py", requirements="packages.txt")
        home = home_of(conf, bundle)
        top = home.train / "repo"
        source = Source(top, conf.script, home.train, (), conf.requirements, conf.command, None, home.others)
        found.append(Bundle.build(source))
    assert found[0].sha256 != found[1].sha256
    assert b"print('first')" in found[0].data
    assert all(b"trc/__init__.py" in one.data and b"six" in one.data for one in found)


@pytest.mark.parametrize("form", [{"source": "other", "command": "python train.py"}, {"script": "other/train.py"}])
def test_what_is_not_in_the_bundle_is_deployed(
    deployed: Path, versions: tuple[Checkout, Checkout], form: dict[str, str]
) -> None:
    """As before there were bundles, and no version is claimed for it."""
    assert home_of(asked(**form), versions[0]) == Home(deployed, (PACKAGED,))


def test_a_bundle_without_versions_changes_nothing(deployed: Path, versions: tuple[Checkout, Checkout]) -> None:
    """A local folder of DAG files is what is deployed."""
    versions[0].supports_versioning = False
    assert home_of(asked(source="repo", command="python train.py"), versions[0]) == Home(deployed, (PACKAGED,))
    assert home_of(asked(source="repo", command="python train.py"), None) == Home(deployed, (PACKAGED,))


def test_nothing_above_the_checkout_counts(tmp_path: Path, deployed: Path) -> None:
    """A repository without projects does not find those of the folder that bundles are kept in."""
    first = commit(tmp_path / "repository", {"dags/dag.py": ""})
    (tmp_path / "bundles" / "include" / "train" / "repo").mkdir(parents=True)
    bundle = Checkout(tmp_path / "repository", first, tmp_path / "bundles" / "project")
    assert home_of(asked(source="repo", command="python train.py"), bundle) == Home(deployed, (PACKAGED,))


def test_the_library_is_there_in_any_case(tmp_path: Path, deployed: Path) -> None:
    """A notebook needs it on the TPU VM, and an include directory of one's own need not have it."""
    (deployed / "trc" / "__init__.py").unlink()
    (deployed / "trc").rmdir()
    home = home_of(asked(source="repo", command="python train.py"), None)
    source = Source(deployed / "repo", "train.py", home.train, others=home.others)
    assert b"trc/notebook.py" in Bundle.build(source).data
