# SPDX-License-Identifier: Apache-2.0
"""A9 with everything real but Google: Airflow dies for good, and its TPU leaves all the same."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.run.manifest import Manifest
from airflow_tpu.core.run.messages import LogChunk
from airflow_tpu.core.run.plan import Attempt, artifacts_uri, plan_job
from airflow_tpu.errors import ConnectionFailed
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.collect import confirm
from airflow_tpu.lifecycle.training.follow import RunningJob
from airflow_tpu.lifecycle.training.launch import attach, build_bundle, launch, locate
from airflow_tpu.lifecycle.waits.loss import living
from airflow_tpu.lifecycle.waits.reachability import ONE_TRY
from localcloud.testing import eventually_async
from tests.airflow_tpu.attempts import ENDLESS, NODE, NODE_ID, ready, run_context, script
from tests.airflow_tpu.cloud_env import KEY, PARENT, ZONE, CloudEnv, now

pytestmark = pytest.mark.slow

TIMEOUT = 90.0
REF = RunRef(KEY.name, 1)
# Saves a result and a checkpoint, then trains for ever.
TRAIN = """
import os, pathlib, time
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "model").write_text("weights")
pathlib.Path(os.environ["TRC_CHECKPOINT_DIR"], "state").write_text("weights")
print("ready", flush=True)
time.sleep(1000)
"""


async def start(client: TPUClient, work: RunContext, **changes: Any) -> RunningJob:
    """Start an attempt as the task does, with other times."""
    record, bundle = await ready(work, client), build_bundle(work)
    view = await living(client, NODE)
    own = view.queued_resource or view.name
    attempt = Attempt(KEY.name, 1, record.lease.expires_at, own_resource=str(own))
    spec = plan_job(work.conf, work.request.accelerator, bundle, attempt)
    job = replace(await locate(client, work, record, NODE), ref=REF)
    async with RunSession(job.address, work.clients.access.login, ONE_TRY) as session:
        await session.start(replace(spec, grace_secs=5.0, abandon_secs=1.0, **changes), bundle)
    return job


def saved(env: CloudEnv, work: RunContext) -> Manifest:
    """What the worker says it has saved, confirmed by the bucket."""
    uri = artifacts_uri(work.conf, KEY.name, 1)
    found = env.storage.read_json(f"{uri}/manifest.json")
    assert found is not None
    manifest = Manifest.from_json(found.data)
    confirm(work, manifest, uri)
    return manifest


def jobs(env: CloudEnv) -> list[JobSpec]:
    """Every job that the TPU VMs of the local cloud were given."""
    vms = Path(env.cloud.cloud.config.state_dir, "vm")
    found = vms.glob("*/w0/home/.airflow-tpu/runs/*/*/job.json")
    texts = [json.loads(path.read_text()) for path in found]
    fields = [{name: value for name, value in data.items() if name != "version"} for data in texts]
    return [json_form.from_json(JobSpec, data) for data in fields]


def meters_stand(env: CloudEnv) -> bool:
    """Whether nothing is being charged."""
    return all(row["ready"][-1]["end"] is not None for row in env.cloud.meter()["nodes"])


async def test_tpu_of_an_airflow_that_is_gone(env: CloudEnv, client: TPUClient) -> None:
    """After its follower was lost and its deadline has passed the TPU is deleted, and all it had is in the bucket."""
    work = run_context(script(env, TRAIN), provisioning="queued-resource")
    job = await start(client, work, deadline=now().timestamp() + 20.0)
    async with (
        RunSession(job.address, work.clients.access.login, ONE_TRY) as session,
        contextlib.aclosing(session.follow(REF)) as messages,
    ):
        async for message in messages:
            if isinstance(message, LogChunk) and b"ready" in message.data:
                break
    gone: tuple[dict[str, str], dict[str, str]] = ({}, {})
    await eventually_async(lambda: state_of(env), lambda found: found == gone, TIMEOUT)
    assert {file.path for file in saved(env, work).files} == {"output/model", "log.txt"}
    checkpoints = f"gs://trc-local/runs/{KEY.name}/checkpoints"
    assert any(name.endswith("MANIFEST.json") for name in names(env, checkpoints))
    assert meters_stand(env)
    assert [call["resource"] for call in env.calls("DeleteQueuedResource")] == [f"{PARENT}/queuedResources/{NODE_ID}"]


@pytest.mark.parametrize("tier", ["inprocess", "auto"])
async def test_tpu_whose_account_may_not_delete_it(open_env: Callable[..., CloudEnv], tier: str) -> None:
    """It saves everything and shuts itself down: its node is stopped and costs nothing more."""
    env = open_env(tier)
    env.cloud.add_fault("tpu.call", {"method": "DeleteNode", "transport": "rest"}, times=100, code=7)
    work = run_context(script(env, ENDLESS))
    async with env.client() as client:
        # The guard may be faster than the answer on a slow machine: then the TPU is off, which is what is waited for.
        with contextlib.suppress(ConnectionFailed):
            await start(client, work, deadline=now().timestamp())
    await eventually_async(lambda: state_of(env), lambda found: found[0] == {NODE_ID: "STOPPED"}, TIMEOUT)
    assert "log.txt" in {file.path for file in saved(env, work).files}
    assert meters_stand(env)


@pytest.mark.parametrize("provisioning", ["node", "queued-resource"])
async def test_worker_is_told_what_it_belongs_to(env: CloudEnv, client: TPUClient, provisioning: str) -> None:
    """The job names the queued resource where there is one, since it owns the node, and where the artifacts go."""
    work = run_context(provisioning=provisioning)
    record = await ready(work, client)
    await launch(client, work, record, NODE)
    (job,) = jobs(env)
    collection = "nodes" if provisioning == "node" else "queuedResources"
    assert job.own_resource == f"{PARENT}/{collection}/{NODE_ID}"
    assert job.artifacts_uri == artifacts_uri(work.conf, KEY.name, 1)
    assert (job.deadline, job.abandon_secs, job.stall_secs) == (record.lease.expires_at.timestamp(), 600.0, 3600.0)


async def test_deadline_that_was_raised_reaches_the_worker(env: CloudEnv, client: TPUClient) -> None:
    """A try that holds the lease for longer extends the deadline of the run; a shorter lease takes nothing away."""
    work = run_context(script(env, ENDLESS))
    job = await launch(client, work, await ready(work, client), NODE)
    longer, shorter = (now() + dt.timedelta(hours=hours) for hours in (72, 1))
    for expires_at in (longer, shorter):
        assert await attach(client, work, work.stores.runs.acquire(KEY, ZONE, expires_at), NODE) == job
        async with RunSession(job.address, work.clients.access.login, ONE_TRY) as session:
            assert (await session.status(REF)).deadline == longer.timestamp()


async def state_of(env: CloudEnv) -> tuple[dict[str, str], dict[str, str]]:
    """Nodes and queued resources."""
    return env.nodes(), env.queued()


def names(env: CloudEnv, uri: str) -> list[str]:
    """Names of the objects below a URI."""
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    return [blob.name for blob in env.storage.get_conn().bucket(bucket).list_blobs(prefix=prefix)]
