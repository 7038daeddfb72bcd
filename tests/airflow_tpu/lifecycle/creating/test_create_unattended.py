# SPDX-License-Identifier: Apache-2.0
"""A9: a TPU whose Airflow is gone between the create and the start of its run ends by itself."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.core.tpu.startup_script import ARRIVAL_SECS, StartupScript
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.settings import remote_dir
from localcloud.testing import TIMEOUT, eventually_async
from tests.airflow_tpu.cloud_env import FORM, KEY, ZONE, CloudEnv, now

BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


@BOTH
@pytest.mark.parametrize(("lease", "arrival"), [(3600.0, 0.5), (3.0, ARRIVAL_SECS)], ids=["no run", "deadline"])
async def test_tpu_that_no_run_reaches_gives_itself_back(
    env: CloudEnv, client: TPUClient, queued: bool, lease: float, arrival: float
) -> None:
    """A laptop is closed after the create: the TPU comes, waits for a run or its deadline, and deletes itself."""
    startup = replace(StartupScript.build(remote_dir()), arrival_secs=arrival)
    record = env.runs.acquire(KEY, ZONE, now() + dt.timedelta(seconds=lease))
    await env.provisioner(client, replace(env.order(queued=queued), startup=startup), record).ensure()

    async def left() -> list[str]:
        return [*env.nodes().values(), *env.queued().values()]

    # A request whose time was over before it got its node stays as a dead one, which is not charged.
    await eventually_async(left, lambda found: found in ([], ["FAILED"]), TIMEOUT)


@BOTH
def test_every_run_asks_for_a_tpu_that_ends_by_itself(env: CloudEnv, queued: bool) -> None:
    """The startup script knows what to delete, the end of the lease, and how long it waits for the run."""
    form = {**FORM, "tier": "on-demand", "provisioning": "queued-resource" if queued else "node"}
    record = env.lease()
    stamp = RunContext(KEY, form, Connections()).request.order(record).stamp(record)
    resource = (
        f"projects/local-project/locations/us-central1-f/{'queuedResources' if queued else 'nodes'}/{record.node_id}"
    )
    ends_at = record.lease.expires_at.timestamp()
    assert stamp.startup_script.splitlines()[-1] == f"main({resource!r}, {ends_at!r}, {ARRIVAL_SECS!r})"


def test_slice_has_no_startup_script(env: CloudEnv) -> None:
    """The run arrives on the first worker only, so the others could not tell."""
    order = env.order(accelerator_type="v4-64", zone="us-central2-b", tier=Tier.SPOT)
    assert replace(order, startup=StartupScript.build(remote_dir())).stamp(env.lease()).startup_script == ""
