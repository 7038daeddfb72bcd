# SPDX-License-Identifier: Apache-2.0
"""Whole DAG runs as in tests/dags, machines as in tests/remote, by the same fixtures; and a project in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dags.conftest import cloud, package_log, private_key, run_dag
from tests.faults.ending import settle
from tests.faults.project import Project
from tests.remote.conftest import bucket, moved_run, oldest_machine, run

__all__ = ["bucket", "cloud", "moved_run", "oldest_machine", "package_log", "private_key", "run", "run_dag"]


@pytest.fixture
def project() -> Iterator[Project]:
    """A project in which, whatever the test has done, nothing is left and every second is booked in the end."""
    found = Project()
    yield found
    settle(found)
