# SPDX-License-Identifier: Apache-2.0
"""The text of a startup script; what it does is tested in ``tests/remote/guard``."""

from __future__ import annotations

import ast
import datetime as dt
import subprocess
import sys
from pathlib import Path

from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.startup_script import StartupScript

REMOTE = Path(__file__).parents[4] / "include" / "remote"
LIMIT = 64 * 1024
"""Bytes. Compute Engine takes 256 KB in one metadata value and 512 KB in all
(https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations)."""


def text() -> str:
    """The script of one node."""
    deadline = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
    return StartupScript.build(REMOTE).text(node_name("p", "us-central1-f", "n-1"), deadline)


def test_script_is_small_and_says_what_it_is_for() -> None:
    """It is Python of the image, fits into the metadata, and its last line has resource, deadline and patience."""
    script = text()
    ast.parse(script, feature_version=(3, 8))
    assert script.startswith("#!/usr/bin/env python3\n# airflow-tpu: deletes this TPU")
    assert len(script) < LIMIT
    assert script.splitlines()[-1] == "main('projects/p/locations/us-central1-f/nodes/n-1', 1795953600.0, 3600.0)"


def test_script_is_the_same_each_time() -> None:
    """A create that is repeated with its request id asks for the same."""
    assert text() == text()


def test_script_brings_every_module_that_its_modules_import(tmp_path: Path) -> None:
    """A module of the runner that one of them imports and the archive lacks would leave a TPU without its guard."""
    archive = tmp_path / "modules.zip"
    archive.write_bytes(StartupScript.build(REMOTE).archive)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import guard.boot_guard"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(archive)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
