# SPDX-License-Identifier: Apache-2.0
"""A follower whose worker has another address by now."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.lifecycle.training.follow import Follower, RunningJob
from airflow_tpu.lifecycle.waits.reachability import arrive
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, now, poll_policy

NOWHERE = "127.255.255.254"
"""A loopback address at which no worker listens."""


async def test_moved_worker_is_found_at_the_port_of_the_connection(env: CloudEnv, client: TPUClient) -> None:
    """The follower takes over the address that the API publishes; the port stays the one that the connection names."""
    target = await env.provisioner(client, env.order(), env.lease()).ensure()
    arrival, (address,) = await arrive(client, target, env.access, poll_policy())
    job = JobSpec(KEY.name, 1, ("echo", "here"))
    async with RunSession(address, env.login) as session:
        await session.start(job, Bundle((), b"\0" * 1024))
    lines: list[str] = []
    left = RunningJob(arrival.view.name, replace(address, host=NOWHERE), job.ref)
    follower = Follower(client, env.login, left, lines.append)
    result = await follower.until_finished(now() + dt.timedelta(hours=1))
    assert result is not None
    assert (result.exit_code, lines) == (0, ["here"])
    assert (follower.job.address.host, follower.job.address.port) == (address.host, address.port)
