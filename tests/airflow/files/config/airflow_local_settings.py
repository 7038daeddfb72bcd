# SPDX-License-Identifier: Apache-2.0
"""Airflow imports this file when it starts.

Every task is a fork of the scheduler. What the scheduler has imported already, fifty tasks need not import again, each
on its own: on two slow cores that is most of what they do.
"""

from __future__ import annotations

import importlib
import os


def host() -> str:
    """Name of the host, by which Airflow tells two triggerers of one machine apart (``[core] hostname_callable``)."""
    return os.environ.get("STACK_HOST", "localhost")


for name in os.environ.get("STACK_PRELOAD", "").split():
    importlib.import_module(name)
