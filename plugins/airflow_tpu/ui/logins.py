# SPDX-License-Identifier: Apache-2.0
"""Commands with which a person logs in to the running TPUs of this Airflow, to be copied into a terminal."""

from __future__ import annotations

from airflow_tpu.core.tpu.commands import ssh_command
from airflow_tpu.core.tpu.spec import TPUView
from airflow_tpu.ui.living_tpus import living
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot


def logins(snapshot: Snapshot, reader: Reader) -> list[dict[str, str]]:
    """One command for each TPU that is READY, whether healthy or not, and was made by a run that the reader may see."""
    names = sorted(
        view.name
        for view, item in living(snapshot)
        if _is_running(snapshot, view) and reader.may_see(snapshot.runs.get(item.owner or "", (None,))[0])
    )
    return [{"name": name.id, "command": ssh_command(name)} for name in names]


def _is_running(snapshot: Snapshot, view: object) -> bool:
    return isinstance(view, TPUView) and view.state == "READY" and snapshot.airflows.owns(view.labels)
