# SPDX-License-Identifier: Apache-2.0
"""The last contact of Airflow with this machine: commands record it, the guard reads it."""

from __future__ import annotations

import os

import protocol

from machine.run_dir import RunDir


def record(run: RunDir) -> None:
    """Record a contact now; an attempt that this machine does not know stays unknown."""
    try:
        os.utime(str(run.path / protocol.CONTACT_FILE))
    except FileNotFoundError:
        return


def last(run: RunDir) -> float:
    """Return the Unix time of the last contact, 0 if there was none."""
    try:
        return os.stat(str(run.path / protocol.CONTACT_FILE)).st_mtime
    except FileNotFoundError:
        return 0.0
