# SPDX-License-Identifier: Apache-2.0
"""An API that stumbles says nothing of a TPU: it is not deleted for that."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import events
from tests.faults.observed_run import ObservedRun

UNKNOWN = 2
"""A code that no call is repeated for."""


def stumble(observed: ObservedRun) -> None:
    """End the try that brings the output home, and then the one that looks for the TPU; then let the training end."""
    observed.add_fault("tpu.call", match={"method": "GetNode"}, code=UNKNOWN)
    # Not ListNodes, which a task that follows a training asks for too, and can do without.
    observed.add_fault("tpu.call", match={"method": "ListQueuedResources"}, code=UNKNOWN)
    for progress in observed.files("progress.json"):
        (progress.parent / "go").touch()


@pytest.mark.slow
def test_two_tries_in_a_row_end_with_a_stumble(cloud: BackgroundCloud, run_dag: Callable[..., Any]) -> None:
    """The run's one TPU lives until its output is in the bucket, whatever the API answers meanwhile."""
    observed = ObservedRun(cloud, f"t{uuid.uuid4().hex[:10]}.py")
    with observed.at("trained", stumble):
        outcome = run_dag(script=observed.upload(), provisioning="node", environment="HELD=yes")
    assert observed.idle_faults == []
    assert (outcome.state, outcome.tries["train"]) == ("success", 3), outcome.log[-6000:]
    assert len(events(cloud, "opened")) == 1
