"""The matrix runs whole DAGs as tests/dags does, with the same fixtures."""

from __future__ import annotations

from tests.dags.conftest import cloud, database, private_key, run_dag

__all__ = ["cloud", "database", "private_key", "run_dag"]
