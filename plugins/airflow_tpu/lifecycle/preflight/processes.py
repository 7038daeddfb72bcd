# SPDX-License-Identifier: Apache-2.0
"""Look at the processes of Airflow that a run depends on, before it waits for them without a word."""

from __future__ import annotations

import logging

from airflow_tpu.clients import airflow_state
from airflow_tpu.errors import TransientError

log = logging.getLogger(__name__)

REAPER = "tpu_reaper"
"""The DAG that deletes what outlived its run."""


def check_triggerer() -> None:
    """Refuse a run whose waits nobody would end.

    :raises TransientError: Airflow says that no triggerer is alive; one that is restarted is back for the next try.
    """
    alive = airflow_state.triggerer_is_alive()
    if alive is None:
        log.info(
            "whether a triggerer is alive cannot be seen from here; without one every wait of the run stands still"
        )
    elif not alive:
        raise TransientError(
            "no triggerer of this Airflow is alive, so every wait of the run would stand still while its TPU counts: "
            "start one (airflow triggerer), or give the tasks deferrable=False"
        )


def warn_of_reaper() -> None:
    """Say that nothing would delete a TPU whose tasks have all failed."""
    paused = airflow_state.is_paused(REAPER)
    if paused is None:
        log.info(
            "no DAG %s in this Airflow, or it cannot be seen from here: see that something deletes forgotten TPUs",
            REAPER,
        )
    elif paused:
        log.warning(
            "%s is paused: a TPU that outlives its run is deleted by nobody. Unpause it on its page, or with: airflow "
            "dags unpause %s",
            REAPER,
            REAPER,
        )
