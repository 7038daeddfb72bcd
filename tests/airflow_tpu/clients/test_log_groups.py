# SPDX-License-Identifier: Apache-2.0
"""Groups in a task log."""

from __future__ import annotations

import logging

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger
from tests.airflow_tpu.identities import AIRFLOW

log = logging.getLogger("airflow_tpu.tests.log_groups")
WATCH = TriggerContext(RunKey(AIRFLOW, "dag", "run"), "token", "google", "ssh", "", 1.0, 2.0)
TRIGGER = CloudTPUCapacityTrigger(TRIGGER_CONTEXT_FORM.to_json(WATCH), {})


def test_lines_of_a_phase_lie_in_its_group(caplog: pytest.LogCaptureFixture) -> None:
    """The marks are those that Airflow's log page folds, each on a line of its own."""
    caplog.set_level(logging.INFO, log.name)
    with log_group(log, "Ask for the TPU"):
        log.info("creating")
    log.info("waiting")
    assert caplog.messages == ["::group::Ask for the TPU", "creating", "::endgroup::", "waiting"]


@pytest.mark.parametrize(
    "ending",
    [ValueError("an error"), KeyboardInterrupt(), TaskDeferred(trigger=TRIGGER, method_name="execute")],
    ids=lambda error: type(error).__name__,
)
def test_group_is_closed_however_it_ends(ending: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """An error, a signal or a deferral leaves no group open, which would fold everything after it."""
    caplog.set_level(logging.INFO, log.name)
    with pytest.raises(type(ending)), log_group(log, "Ship the script"):
        raise ending
    assert caplog.messages == ["::group::Ship the script", "::endgroup::"]
