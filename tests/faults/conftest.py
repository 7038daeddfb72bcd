"""Whole DAG runs as in tests/dags, and machines as in tests/remote, by the same fixtures."""

from __future__ import annotations

from tests.dags.conftest import cloud, package_log, private_key, run_dag
from tests.remote.conftest import bucket, moved_run, oldest_machine, run

__all__ = ["bucket", "cloud", "moved_run", "oldest_machine", "package_log", "private_key", "run", "run_dag"]
