# SPDX-License-Identifier: Apache-2.0
"""Identities of the Airflows of the tests."""

from __future__ import annotations

from airflow_tpu.core.grant.grant import DEFAULT_PREFIX
from airflow_tpu.core.tpu.identity import Airflows

AIRFLOW = "a1a1a1a1a1a1"
"""The one that the test process is; ``tests/conftest.py`` gives it this identity by an environment variable."""

OTHER_AIRFLOW = "b2b2b2b2b2b2"
"""Another one, of the same project."""

OWN = Airflows(AIRFLOW, root=f"gs://trc-local/{DEFAULT_PREFIX}")
"""The one that the test process is, with the leases of the local cloud's grant; it knows no other by name."""
