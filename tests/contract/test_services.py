# SPDX-License-Identifier: Apache-2.0
"""The Google services that are called: each one costs money or rights of its own."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = re.compile(r"^\s*(?:from google\.cloud import (\w+)|(?:from|import) google\.cloud\.(\w+))", re.MULTILINE)
HOOK = re.compile(r"airflow\.providers\.google\.([\w.]+)")
MANAGERS = re.compile(r"\b(apt-get|aptitude|apt|dpkg|snap|yum|dnf)\b")
HOST = re.compile(r"\b([a-z0-9-]+)\.googleapis\.com\b")


def test_the_package_calls_no_other_service() -> None:
    """The TPU API, Cloud Storage, and a question for rights: no VM or disk is made, and no service is switched on."""
    files = [path for folder in ("plugins", "include", "dags") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert {one or other for one, other in CLIENT.findall(text)} == {"storage", "tpu_v2"}
    assert set(HOOK.findall(text)) == {"common.hooks.base_google", "cloud.hooks.gcs"}
    assert set(HOST.findall(text)) == {"cloudresourcemanager", "storage", "tpu", "www"}
    assert "googleapiclient" not in text


def test_the_machine_s_package_manager_is_left_alone() -> None:
    """Nothing that is shipped to a TPU VM, or run there, waits for the lock of a package manager."""
    shipped = [path for folder in ("remote", "train") for path in (ROOT / "include" / folder).rglob("*.py")]
    package = ROOT / "plugins" / "airflow_tpu"
    run_there = [*(package / "clients").glob("*.py"), *(package / "lifecycle").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*shipped, *run_there])
    assert MANAGERS.findall(text) == []
    assert MANAGERS.findall("['sudo', 'apt-get', 'install'] or `dpkg -i`") == ["apt-get", "dpkg"]
