# SPDX-License-Identifier: Apache-2.0
"""What a project asks for is installed: a lock file, or the dependencies of its ``pyproject.toml``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_tpu import protocol
from tests.remote.installing import FOLDER, Index, image, install, toy_wheel
from tests.remote.vm import Machine

pytestmark = pytest.mark.slow  # each makes an environment

PROJECT = """
[project]
name = "mine"
version = "0.1"
requires-python = ">=3.8"
dependencies = ["toy>=0.5"]
"""


def uv_program() -> str:
    """The uv of the development environment."""
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found is not None
    return found


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A package index with the package."""
    with Index(toy_wheel(tmp_path / "index")) as running:
        yield running


@pytest.fixture
def lock(tmp_path: Path, index: Index) -> bytes:
    """The lock file of the project, as uv writes it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text(PROJECT)
    environment = {**os.environ, **index.environment, "UV_CACHE_DIR": str(tmp_path / "uv-cache")}
    subprocess.run([uv_program(), "lock", "-q"], cwd=tmp_path / "mine", env=environment, check=True)
    return (tmp_path / "mine" / "uv.lock").read_bytes()


@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock"])
def test_a_lock_file_is_installed_as_it_says(machine: Machine, index: Index, lock: bytes, name: str) -> None:
    """The project's own name is not looked for on an index, and the script imports the package."""
    image(machine)
    (machine.home / "bin" / "uv").symlink_to(uv_program())
    files: dict[str, str | bytes] = {f"{FOLDER}/pyproject.toml": PROJECT, f"{FOLDER}/uv.lock": lock}
    result, log = install(machine, index.environment, files=files, requirements=f"{FOLDER}/{name}")
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy"), log


def test_a_lock_file_with_another_wheel_is_refused(machine: Machine, index: Index, lock: bytes) -> None:
    """pip compares the hash of the lock file with what the index has."""
    image(machine)
    (machine.home / "bin" / "uv").symlink_to(uv_program())
    start = lock.index(b"sha256:") + len(b"sha256:")
    other = lock[:start] + b"0" * 64 + lock[start + 64 :]
    files: dict[str, str | bytes] = {f"{FOLDER}/pyproject.toml": PROJECT, f"{FOLDER}/uv.lock": other}
    result, log = install(machine, index.environment, files=files, requirements=f"{FOLDER}/uv.lock")
    assert (result.step, result.exit_code) == ("setup", 1)
    assert "DO NOT MATCH THE HASHES" in log


def test_dependencies_without_a_lock_file_are_installed(machine: Machine, index: Index) -> None:
    """Nothing of the project is built, and uv is not needed."""
    image(machine)
    files = {f"{FOLDER}/pyproject.toml": PROJECT}
    result, log = install(machine, index.environment, files=files, requirements=f"{FOLDER}/pyproject.toml")
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy"), log


def test_uv_installs_where_there_is_no_pip(machine: Machine, index: Index) -> None:
    """An image with python3 and uv alone runs the script, and the log says what that means."""
    image(machine, "-m venv", "-m virtualenv", "-m pip")
    (machine.home / "bin" / "uv").symlink_to(uv_program())
    result, log = install(machine, {**index.environment, "UV_CACHE_DIR": str(machine.home / "uv-cache")})
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy"), log
    assert "so uv installs" in log


def test_an_unreachable_index_is_tried_again_with_uv_too(machine: Machine, index: Index) -> None:
    """It ends with 74, as with pip."""
    image(machine, "-m venv", "-m virtualenv", "-m pip")
    (machine.home / "bin" / "uv").symlink_to(uv_program())
    index.stop()
    environment = {**index.environment, "UV_CACHE_DIR": str(machine.home / "uv-cache"), "UV_HTTP_RETRIES": "0"}
    result, log = install(machine, environment)
    assert (result.step, result.exit_code) == ("setup", protocol.EXIT_STORAGE), log


def test_the_packages_of_the_image_are_used_as_they_are(machine: Machine, index: Index, tmp_path: Path) -> None:
    """A requirement that the image has is installed from nowhere: its own TensorFlow stays."""
    image(machine)
    site = machine.home / ".local" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    shutil.unpack_archive(toy_wheel(tmp_path / "of-image"), site, "zip")
    (site / "toy.py").write_text("NAME = 'of the image'")
    result, log = install(machine, index.environment)
    assert (result.exit_code, log.splitlines()[-1], index.requests) == (0, "of the image", [])
