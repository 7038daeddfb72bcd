"""Identities of the Airflows of the tests."""

from __future__ import annotations

from airflow_tpu.core.tpu.identity import Airflows

AIRFLOW = "a1a1a1a1a1a1"
"""The one that the test process is; ``tests/conftest.py`` gives it this identity by an environment variable."""

OTHER_AIRFLOW = "b2b2b2b2b2b2"
"""Another one, of the same project."""

OWN = Airflows(AIRFLOW)
"""The one that the test process is, which knows no other by name."""
