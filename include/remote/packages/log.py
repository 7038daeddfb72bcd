# SPDX-License-Identifier: Apache-2.0
"""The run's log, as the setup step writes to it."""

from __future__ import annotations


def say(text: str) -> None:
    """Write a line to the run's log, which is standard output."""
    print("airflow-tpu: " + text, flush=True)
