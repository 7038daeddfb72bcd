"""Requirements are installed on images of every kind, and an index that is away is no fault of the script."""

from __future__ import annotations

import ensurepip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.errors import RunFailed, StorageUnreachable
from tests.remote.vm import Machine

pytestmark = pytest.mark.slow  # each makes an environment

FOLDER = "reqs of mine"
USE = ("python3", "-c", "import toy; print(toy.NAME)")
ENSUREPIP = "The virtual environment was not created successfully because ensurepip is not available."


@pytest.fixture
def index(tmp_path: Path) -> dict[str, str]:
    """A folder with the package ``toy``, which pip reads instead of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "toy-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy.py", "NAME = 'a toy'\n")
        wheel.writestr("toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        wheel.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("toy-1.0.dist-info/RECORD", "")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}


def pip_wheel() -> Path:
    """The pip that comes with Python, as a wheel; Debian keeps it in a folder of its own."""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next(wheel for folder in folders for wheel in folder.glob("pip-*.whl"))


def image(machine: Machine, *lacks: str, virtualenv: str = "venv") -> None:
    """Give a machine the python3 of an image.

    :param lacks: beginnings of arguments with which this python3 fails.
    :param virtualenv: module that answers when the module virtualenv is asked for.
    """
    refusals = "".join(f"  '{words} '*) echo '{ENSUREPIP}' >&2; exit 1;;\n" for words in lacks)
    rename = f'if [ "$2" = virtualenv ]; then shift 2; set -- -m {virtualenv} "$@"; fi\n'
    python = machine.home / "bin" / "python3"
    # The environment of the tests may have no pip of its own: that of the image is the one that ensurepip brings.
    pip = f'export PYTHONPATH="{pip_wheel()}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    python.write_text(f'#!/bin/sh\ncase "$* " in\n{refusals}esac\n{rename}{pip}exec {sys.executable} "$@"\n')
    python.chmod(0o755)


def install(
    machine: Machine, environment: dict[str, str], attempt: int = 1, files: Mapping[str, str] = MappingProxyType({})
) -> tuple[RunResult, str]:
    """Run a job that uses the package; return its result and its log."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in {f"{FOLDER}/vm.txt": "toy\n", **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    job = JobSpec("run", attempt, USE, environment=environment, requirements=f"{FOLDER}/vm.txt")
    data = buffer.getvalue()
    described = {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    start = protocol.encode(protocol.START, job=json_form.to_json(job), bundle=described)
    assert machine.ask("start", data=start + data)["type"] == protocol.STARTED
    return RunResult.from_json(machine.result(job.ref)), machine.log(job.ref).decode()


@pytest.mark.parametrize(
    "lacks",
    [
        (),
        ("-m venv",),
        ("-m venv --system-site-packages", "-m virtualenv"),
        ("-m venv", "-m virtualenv"),
    ],
    ids=["python3-venv", "virtualenv", "system-pip", "pip-alone"],
)
def test_requirements_are_installed_with_what_the_image_has(
    machine: Machine, index: dict[str, str], lacks: tuple[str, ...]
) -> None:
    """With python3-venv, without it, and with nothing but pip: the script imports its package."""
    image(machine, *lacks)
    result, log = install(machine, index)
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")
    assert ("package python3-venv" in log) == bool(lacks)


def test_the_next_attempt_finds_them_installed(machine: Machine, index: dict[str, str]) -> None:
    """On the same machine nothing is made anew, in an environment that was made by hand either."""
    image(machine, "-m venv", "-m virtualenv")
    install(machine, index)
    result, log = install(machine, index, attempt=2)
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")
    assert "python3-venv" not in log


def test_modules_of_the_bundle_do_not_disturb_the_installation(machine: Machine, index: dict[str, str]) -> None:
    """A script's neighbour may be called like a module that pip needs."""
    image(machine)
    result, log = install(machine, index, files={"optparse.py": "raise SystemExit('not mine')"})
    assert (result.exit_code, log.splitlines()[-1]) == (0, "a toy")


def test_an_image_without_any_way_says_what_to_do(machine: Machine, index: dict[str, str]) -> None:
    """No environment and no pip: the log names the packages that one of the images must have."""
    image(machine, "-m venv", "-m virtualenv", "-m pip")
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
