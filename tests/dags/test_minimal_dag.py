# SPDX-License-Identifier: Apache-2.0
"""The script that people copy runs through the whole pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import names_left, objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_minimal_script_trains_and_its_figure_is_kept(cloud: BackgroundCloud, run_dag: Callable[..., Any]) -> None:
    """minimal.py as the script of a run: its checkpoints and its figure are in the bucket, and the TPU is gone."""
    outcome = run_dag(script="minimal.py", arguments="--steps 60 --save-every 20", provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    stored = objects(cloud)
    (result,) = (json.loads(body) for name, body in stored.items() if name.endswith("/output/result.json"))
    assert result["status"] == "done"
    assert result["metrics"]["accuracy"]["value"] >= 0.8
    assert any("/checkpoints/attempt-1/000000000060." in name for name in stored)
    assert "training on cpu, 1 replica, from step 0 of 60" in outcome.log
    assert names_left(cloud) == []
