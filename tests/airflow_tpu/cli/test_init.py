# SPDX-License-Identifier: Apache-2.0
"""A project made by ``airflow-tpu init``: all of it or nothing, and what to do next."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import asyncssh
import pytest

from airflow_tpu import settings
from airflow_tpu.cli.main import main

ROOT = Path(__file__).parents[3]


def files_below(folder: Path) -> dict[str, bytes]:
    """Contents by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_what_a_person_edits_is_copied_and_nothing_else(tmp_path: Path) -> None:
    """DAG files and training scripts are those of the package; no grant of somebody's, no program of the TPU VM."""
    assert main(["init", str(tmp_path / "mine")]) == 0
    made = files_below(tmp_path / "mine")
    dags = {f"dags/{name}": content for name, content in files_below(ROOT / "dags").items()}
    train = {f"include/train/{name}": content for name, content in files_below(ROOT / "include" / "train").items()}
    assert dags.items() <= made.items()
    assert train.items() <= made.items()
    assert {name for name in made if name.startswith("include/")} - train.keys() == {"include/grants/example.yaml"}


def test_the_steps_that_it_prints_name_its_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each next step names what it needs, and the environment file leads Airflow to the new folders."""
    folder = tmp_path / "my project"
    assert main(["init", str(folder), "--project-id", "my-own-project"]) == 0
    printed = capsys.readouterr().out
    assert "--project-id my-own-project" in printed
    assert f"'{folder}'/connections/connections.json" in printed
    shown = subprocess.run(
        ["bash", "-c", f". '{folder}/airflow.env' && echo \"$AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR\""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == str(folder / "include")


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file that is there already, even a broken link, stops all of it, and is named."""
    (tmp_path / "connections").mkdir()
    (tmp_path / "connections" / "tpu_key").symlink_to("/nowhere")
    assert main(["init", str(tmp_path)]) == 1
    assert "connections/tpu_key" in capsys.readouterr().err
    assert files_below(tmp_path) == {}


def test_connections_are_private_and_complete(tmp_path: Path) -> None:
    """The key fits its public half, logs in as the connection says, and only this user can read it."""
    assert main(["init", str(tmp_path / "p"), "--project-id", "my-own-project"]) == 0
    folder = tmp_path / "p" / "connections"
    found = json.loads((folder / "connections.json").read_text(encoding="utf-8"))
    assert found["google_cloud_default"]["extra"] == {"project": "my-own-project"}
    key = asyncssh.import_private_key(found["tpu_ssh_default"]["extra"]["private_key"])
    assert key.public_data == asyncssh.read_public_key(folder / "tpu_key.pub").public_data
    each = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in found}
    assert each == found
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert {modes.pop("connections"), *modes.values()} == {0o700, 0o600}
    assert len(modes) == 5


def test_two_projects_have_two_keys(tmp_path: Path) -> None:
    """No key is shipped: each project makes its own."""
    for name in ("a", "b"):
        assert main(["init", str(tmp_path / name)]) == 0
    assert len({(tmp_path / name / "connections" / "tpu_key").read_bytes() for name in ("a", "b")}) == 2


def test_a_project_follows_the_package_in_what_belongs_to_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts and grant are the project's; the program on the TPU VM and the catalogue stay those of the package."""
    assert main(["init", str(tmp_path / "p")]) == 0
    include = tmp_path / "p" / "include"
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(include))
    assert settings.include_dir() == include
    assert settings.remote_dir() == ROOT / "include" / "remote"
    assert settings.tables_dir() == ROOT / "include" / "catalogue"
    assert not settings.include_is_installed()
