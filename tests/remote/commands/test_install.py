# SPDX-License-Identifier: Apache-2.0
"""Requirements are installed on images of every kind, and an index that is away is no fault of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.result import classify_exit
from airflow_tpu.errors import RunFailed, StorageUnreachable
from tests.remote.installing import FOLDER, image, install, toy_wheel
from tests.remote.vm import Machine

pytestmark = pytest.mark.slow  # each makes an environment


@pytest.fixture
def index(tmp_path: Path) -> dict[str, str]:
    """A folder with the package ``toy``, which pip reads instead of an index."""
    folder = toy_wheel(tmp_path / "index").parent
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}


def without_uv(machine: Machine) -> None:
    """Hide the uv that this computer may have."""
    (machine.home / "bin" / "uv").write_text("#!/bin/sh\nexit 1\n")
    (machine.home / "bin" / "uv").chmod(0o755)


@pytest.mark.parametrize(
    "lacks",
    [
        (),
        ("-m venv",),
        ("-m venv --without-pip",),
        ("-m venv", "-m virtualenv"),
    ],
    ids=["system-pip", "virtualenv", "python3-venv", "pip-alone"],
)
def test_requirements_are_installed_with_what_the_image_has(
    machine: Machine, index: dict[str, str], lacks: tuple[str, ...]
) -> None:
    """With python3-venv, without it, and with nothing but pip: the script imports its package."""
    image(machine, *lacks)
    result, log = install(machine, index)
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")
    assert ("package python3-venv" in log) == ("-m venv" in lacks)


def test_the_next_attempt_finds_them_installed(machine: Machine, index: dict[str, str]) -> None:
    """On the same machine nothing is made anew, in an environment that was made by hand either."""
    image(machine, "-m venv", "-m virtualenv")
    install(machine, index)
    result, log = install(machine, index, attempt=2)
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")
    assert "python3-venv" not in log
    assert "the requirements are installed already" in log


def test_modules_of_the_bundle_do_not_disturb_the_installation(machine: Machine, index: dict[str, str]) -> None:
    """A script's neighbour may be called like a module that pip needs."""
    image(machine)
    result, log = install(machine, index, files={"optparse.py": "raise SystemExit('not mine')"})
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")


def test_an_image_without_any_way_says_what_to_do(machine: Machine, index: dict[str, str]) -> None:
    """No environment and no pip: the log names the packages that one of the images must have."""
    image(machine, "-m venv", "-m virtualenv", "-m pip")
    without_uv(machine)
    result, log = install(machine, index)
    assert (result.step, result.exit_code) == ("setup", 1)
    assert "Take a runtime version whose image has the package python3-venv or python3-pip" in log


def test_an_index_that_does_not_answer_is_asked_again(machine: Machine, index: dict[str, str]) -> None:
    """It ends with 74: the TPU stays, and the next try installs; the log names Cloud NAT."""
    image(machine)
    away = {**index, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_RETRIES": "1"}
    result, log = install(machine, {**away, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"})
    assert (result.step, result.exit_code) == ("setup", protocol.EXIT_STORAGE)
    assert "Cloud NAT" in log
    error = classify_exit(result)
    assert isinstance(error, StorageUnreachable)
    assert "from the same TPU" in str(error)


def test_a_package_that_does_not_exist_is_the_requirements_fault(machine: Machine, index: dict[str, str]) -> None:
    """The index has answered: another try gives the same."""
    image(machine)
    result, _ = install(machine, index, files={f"{FOLDER}/vm.txt": "no-such-toy\n"})
    assert (result.step, result.exit_code) == ("setup", 1)
    assert isinstance(classify_exit(result, "No matching distribution"), RunFailed)
