# SPDX-License-Identifier: Apache-2.0
"""scripts/setup says plainly what is missing, and does nothing the second time."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def setup(venv: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/setup for an environment in another place."""
    variables = {**os.environ, "VENV": str(venv), **environment}
    command = [str(ROOT / "scripts" / "setup"), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def fake_python(folder: Path, version: str) -> Path:
    """A program that claims to be this version of Python and refuses to run any code."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" && exit 0\nexit 1\n', encoding="utf-8"
    )
    program.chmod(0o755)
    return program


def test_an_old_python_is_refused_with_ways_to_a_newer_one(tmp_path: Path) -> None:
    """A Python that is too old is named with its version, together with how to get one that works."""
    old = fake_python(tmp_path, "3.9.2")
    result = setup(tmp_path / "venv", PYTHON=str(old))
    assert result.returncode == 1
    for fact in (f"{old} (Python 3.9.2)", "3.11, 3.12 or 3.13 is needed", "apt-get install python3", "PYTHON=/path/to"):
        assert fact in result.stderr
    assert not (tmp_path / "venv").exists()


def test_a_finished_environment_is_left_alone(tmp_path: Path) -> None:
    """With the stamp of the current pins in place nothing is created and nothing installed."""
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    fake_python(binaries, "3.11.9")
    pins = (ROOT / "requirements-dev.txt").read_bytes()
    (binaries.parent / ".setup-stamp").write_text(hashlib.sha256(pins).hexdigest(), encoding="utf-8")
    result = setup(binaries.parent)
    assert (result.returncode, result.stderr) == (0, "")
    assert "==> Installing" not in result.stdout


def test_check_only_says_what_is_missing(tmp_path: Path) -> None:
    """--check names the missing environment and creates nothing."""
    result = setup(tmp_path / "venv", "--check")
    assert result.returncode == 0
    assert f"{tmp_path / 'venv'} is missing or not up to date: run scripts/setup" in result.stdout
    assert not (tmp_path / "venv").exists()
