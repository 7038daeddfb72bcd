# SPDX-License-Identifier: Apache-2.0
"""The shipped example loses its TPU in the middle of the training and resumes from its last safe checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_tpu import protocol
from localcloud.testing import BackgroundCloud, eventually
from tests.dags.evidence import events, names_left, object_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Run = Callable[..., Any]
# Many steps: the training must outlast the few seconds between a save and its copy in the bucket.
ARGUMENTS = "--steps 6000 --batch-size 16 --eval-every 500 --save-every 50"
SAFE = re.compile(f"/checkpoints/{protocol.CHECKPOINT_FOLDER}/{protocol.CHECKPOINT_MANIFEST}$")


def safe_step(cloud: BackgroundCloud) -> int:
    """Step of the newest checkpoint in the bucket, 0 if there is none."""
    return max((int(found[2]) for name in object_names(cloud) if (found := SAFE.search(name))), default=0)


def preempt_when_safe(cloud: BackgroundCloud) -> int:
    """Take the TPU away as soon as a checkpoint is safe; return the checkpoint's step."""
    step = eventually(lambda: safe_step(cloud), lambda found: found > 0)
    cloud.preempt(next(name for name in names_left(cloud) if name.endswith("-1")))
    return step


def test_preempted_training_resumes_from_the_bucket(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The second incarnation fetches the checkpoint, trains on from its step, and the run ends green."""
    with ThreadPoolExecutor(1) as pool:
        preempting = pool.submit(preempt_when_safe, cloud)
        outcome = run_dag(script="digits.py", arguments=ARGUMENTS, provisioning="node")
        step = preempting.result()
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tries["train"] == 2
    told = re.search(r"resumed from step (\d+) \(attempt 1 lost \d+ s of work\)", outcome.log)
    assert told is not None, outcome.log[-4000:]
    assert int(told[1]) >= step > 0
    assert f"resuming from step {told[1]} (attempt 1 saved it" in outcome.log
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["preempted", "finished"]
    assert names_left(cloud) == []
