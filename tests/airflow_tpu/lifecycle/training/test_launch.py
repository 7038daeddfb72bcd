# SPDX-License-Identifier: Apache-2.0
"""Start an attempt, find it again, bring home what it made: also on a node that is just being lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.run.job import LastAttempt, RunRef
from airflow_tpu.core.run.plan import artifacts_uri
from airflow_tpu.core.run.result import classify_exit
from airflow_tpu.errors import (
    AccessDenied,
    ArtifactsLost,
    ChecksumMismatch,
    ConfigError,
    ConnectionFailed,
    TPUPreempted,
    TPUVanished,
)
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.collect import brought, collect, confirm, save_rest
from airflow_tpu.lifecycle.training.follow import Follower, RunningJob
from airflow_tpu.lifecycle.training.launch import attach, build_bundle, launch, locate
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.reachability import session_with
from tests.airflow_tpu.attempts import ENDLESS, NODE, NODE_ID, ready, run_context, script
from tests.airflow_tpu.cloud_env import BUCKET, KEY, CloudEnv, poll_policy

pytestmark = pytest.mark.slow

URI = f"gs://{BUCKET}/results"


async def finished(work: RunContext, client: TPUClient, job: RunningJob) -> Any:
    """Follow a run to its end."""
    lines: list[str] = []
    return await Follower(client, work.clients.access.login, job, lines.append).until_finished(poll_policy().until)


async def test_attempt_is_found_again_while_it_runs(env: CloudEnv, client: TPUClient) -> None:
    """A second try of the task attaches to the run that is there and starts none."""
    work = run_context(script(env, ENDLESS))
    record = await ready(work, client)
    assert await attach(client, work, record, NODE) is None
    job = await launch(client, work, record, NODE)
    again = await attach(client, work, work.stores.runs.read(KEY), NODE)
    assert again == job
    assert work.stores.runs.read(KEY).last_attempt().number == 1


async def test_attempt_that_ended_badly_is_not_attached_to(env: CloudEnv, client: TPUClient) -> None:
    """After a failure the next try starts an attempt of its own; after a success it takes the result."""
    work = run_context(script(env, "import os, sys\nsys.exit(int(os.environ['TRC_ATTEMPT']) == 1)\n"))
    record = await ready(work, client)
    first = await finished(work, client, await launch(client, work, record, NODE))
    assert first.exit_code == 1
    assert await attach(client, work, work.stores.runs.read(KEY), NODE) is None
    second = await launch(client, work, work.stores.runs.read(KEY), NODE)
    assert (await finished(work, client, second)).exit_code == 0
    assert await attach(client, work, work.stores.runs.read(KEY), NODE) == second
    assert second.ref == RunRef(KEY.name, 2)


async def test_attempt_is_taken_only_for_what_was_asked_for(env: CloudEnv, client: TPUClient) -> None:
    """With another argument by now, or other code after its end, a new attempt begins, and ends what still ran."""
    work = run_context(script(env, ENDLESS))
    job = await launch(client, work, await ready(work, client), NODE)
    other = run_context(script(env, "import sys\nprint(sys.argv)\n"), arguments="--steps 1")
    assert await attach(client, other, other.stores.runs.read(KEY), NODE) is None
    second = await launch(client, other, other.stores.runs.read(KEY), NODE)
    assert (await finished(other, client, second)).exit_code == 0
    async with session_with(client, other.clients.access.login, NODE, job.address) as session:
        assert (await session.status(job.ref)).state == "finished"
    assert await attach(client, other, other.stores.runs.read(KEY), NODE) == second
    changed = run_context(script(env, "print('new')\n"), arguments="--steps 1")
    assert await attach(client, changed, changed.stores.runs.read(KEY), NODE) is None


async def test_next_training_finds_nothing_of_the_last_one(env: CloudEnv, client: TPUClient) -> None:
    """A training that was marked a success while it ran holds the TPU device; the next one begins after its end.

    Each has attempts, log and artifacts of its own, and what no task has copied is saved for both.
    """
    first = run_context(script(env, ENDLESS)).of_training("train")
    running = await launch(client, first, await ready(first, client), NODE)
    text = "import os, pathlib\npathlib.Path(os.environ['TRC_OUTPUT_DIR'], 'report').write_text('good')\n"
    second = run_context(script(env, text)).of_training("evaluate")
    job = await launch(client, second, second.stores.runs.read(KEY), NODE)
    assert (await finished(second, client, job)).exit_code == 0
    assert (running.ref, job.ref) == (RunRef(f"{KEY.name}-train", 1), RunRef(f"{KEY.name}-evaluate", 1))
    async with session_with(client, second.clients.access.login, NODE, job.address) as session:
        assert (await session.status(running.ref)).state == "finished"
    await asyncio.to_thread(save_rest, run_context())
    below = f"gs://{BUCKET}/runs/{KEY.name}"
    found = [brought(second, f"{below}/{name}/attempt-1") for name in ("train", "evaluate")]
    assert [one and {file.path for file in one.manifest.files} for one in found] == [
        {"log.txt"},
        {"log.txt", "output/report"},
    ]


async def test_attempt_on_a_lost_node_is_not_looked_for(env: CloudEnv, client: TPUClient) -> None:
    """An attempt belongs to the incarnation it was started on."""
    work = run_context()
    record = await ready(work, client)
    await launch(client, work, record, NODE)
    assert await attach(client, work, work.stores.runs.read(KEY), replace(NODE, id=KEY.node_id(2))) is None


async def test_output_is_pushed_and_confirmed(env: CloudEnv, client: TPUClient) -> None:
    """Log and output arrive, counted apart, and the bucket agrees with the manifest."""
    work = run_context()
    record = await ready(work, client)
    await finished(work, client, await launch(client, work, record, NODE))
    collected = await collect(client, work, work.stores.runs.read(KEY), URI)
    assert collected.outputs == 1
    assert {file.path for file in collected.manifest.files} == {"output/hello-0.txt", "log.txt"}
    confirm(work, collected.manifest, URI)


async def test_output_in_a_bucket_with_a_key_of_its_own(env: CloudEnv, client: TPUClient) -> None:
    """No listing shows its checksums: a generation is one content, and another one is a difference."""
    bucket = env.storage.get_conn().bucket(BUCKET)
    bucket.default_kms_key_name = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    bucket.patch()
    work = run_context()
    record = await ready(work, client)
    await finished(work, client, await launch(client, work, record, NODE))
    collected = await collect(client, work, work.stores.runs.read(KEY), URI)
    confirm(work, collected.manifest, URI)
    log = bucket.get_blob("results/log.txt")
    log.upload_from_string(b"x" * log.size)
    with pytest.raises(ChecksumMismatch, match="differs from its manifest"):
        confirm(work, collected.manifest, URI)


async def test_output_that_the_bucket_refuses(env: CloudEnv, client: TPUClient) -> None:
    """A file that did not arrive is named, and the task fails."""
    work = run_context()
    record = await ready(work, client)
    await finished(work, client, await launch(client, work, record, NODE))
    refusal = {"point": "gcs.request", "match": {"object": "*/output/*", "method": "P*"}, "times": 100}
    env.cloud.cloud.faults.add({**refusal, "params": {"action": "403"}})
    collected = await collect(client, work, work.stores.runs.read(KEY), URI)
    with pytest.raises(AccessDenied, match=r"1 file\(s\) could not be uploaded .*\n  - output/hello-0.txt: 403"):
        collected.check(URI)


async def test_node_that_was_preempted_meanwhile(env: CloudEnv, client: TPUClient) -> None:
    """Between READY and the start a TPU can go: that is a preemption, and after a run a loss of what it made."""
    work = run_context()
    await ready(work, client)
    record = work.stores.runs.update(
        work.stores.runs.read(KEY), lambda found: found.next_attempt(LastAttempt(node_id=NODE_ID))
    )
    env.cloud.preempt(NODE_ID)
    with pytest.raises(TPUPreempted):
        await attach(client, work, record, NODE)
    with pytest.raises(TPUPreempted):
        await launch(client, work, record, NODE)
    with pytest.raises(ArtifactsLost, match="lost with it"):
        await collect(client, work, record, URI)


async def test_node_that_somebody_deleted(env: CloudEnv, client: TPUClient) -> None:
    """A node that the API no longer knows has vanished."""
    work = run_context()
    record = await ready(work, client)
    await client.delete_node(NODE)
    await until_gone(client, KEY, poll_policy())
    with pytest.raises(TPUVanished):
        await locate(client, work, record, NODE)


async def test_node_without_an_address(env: CloudEnv, client: TPUClient) -> None:
    """A READY node that shows no address at the moment is a connection to be tried again."""
    work = run_context()
    record = await ready(work, client)
    env.cloud.call(lambda: setattr(env.cloud.cloud.state.node(NODE_ID), "machines", ()))
    with pytest.raises(ConnectionFailed, match="no address"):
        await locate(client, work, record, NODE)


SAVES = """
import os, sys
with open(os.path.join(os.environ["TRC_CHECKPOINT_DIR"], "weights"), "w") as file:
    file.write("%s")
print("revision", os.environ["TRC_REVISION"])
sys.exit(1)
"""


@pytest.mark.parametrize("revision", ["v1", "v2"])
async def test_resume_with_changed_code(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture, revision: str
) -> None:
    """Another script, or another revision of what it fetches, is told by default and refused where the form says so."""
    first = run_context(script(env, SAVES % "one"), revision="v1")
    await finished(first, client, await launch(client, first, await ready(first, client), NODE))
    text = SAVES % ("two" if revision == "v1" else "one")
    refusing = run_context(script(env, text), revision=revision, on_changed_code="refuse")
    result = await finished(refusing, client, await launch(client, refusing, refusing.stores.runs.read(KEY), NODE))
    assert (result.step, result.exit_code) == ("restore", 66)
    assert "on_changed_code is refuse" in str(classify_exit(result))
    telling = run_context(script(env, text), revision=revision)
    lines: list[str] = []
    job = await launch(client, telling, telling.stores.runs.read(KEY), NODE)
    ended = await Follower(client, telling.clients.access.login, job, lines.append).until_finished(poll_policy().until)
    assert ended is not None
    assert ended.exit_code == 1
    assert any("the code has changed" in line and "mixture" in line for line in lines)
    assert f"revision {revision}" in lines
    assert "keeps what is deleted or replaced for 7 days" in caplog.text


@pytest.mark.parametrize("missing", ["no_such.py", f"gs://{BUCKET}/no such.py"])
@pytest.mark.usefixtures("env")
async def test_missing_script_is_a_fault_of_the_form(missing: str) -> None:
    """A script that is not there is named, whether in the folder or in the bucket."""
    with pytest.raises(ConfigError, match=missing.rpartition("/")[2]):
        build_bundle(run_context(missing))


async def test_script_that_may_not_be_read(env: CloudEnv) -> None:
    """A 403 on the script is reported as such, not tried again while a TPU waits."""
    uri = script(env, "pass")
    env.cloud.add_fault("gcs.request", {"object": "scripts/*"}, action="403")
    with pytest.raises(ConfigError, match="may not be read"):
        build_bundle(run_context(uri))


async def test_rest_of_a_run_that_no_task_has_copied_is_saved(env: CloudEnv, client: TPUClient) -> None:
    """What a run has left on its TPU is in the bucket before the delete, and is not asked for a second time."""
    work = run_context(script(env, "import os\nopen(os.environ['TRC_OUTPUT_DIR'] + '/model', 'w').write('weights')\n"))
    record = await ready(work, client)
    await asyncio.to_thread(save_rest, work)
    uri = artifacts_uri(work.conf, KEY.name, 1)
    assert brought(work, uri) is None
    await finished(work, client, await launch(client, work, record, NODE))
    await asyncio.to_thread(save_rest, work)
    saved = brought(work, uri)
    assert saved is not None
    confirm(work, saved.manifest, uri)
    assert {file.path for file in saved.manifest.files} == {"output/model", "log.txt"}
    env.cloud.preempt(NODE_ID)
    await asyncio.to_thread(save_rest, work)


@pytest.mark.parametrize("text", ["oops", "[]", '{"version": 1, "files": [], "failed": [{}]}'])
def test_manifest_of_a_push_that_cannot_be_read_says_nothing(env: CloudEnv, text: str) -> None:
    """What it names is copied again while the TPU lives."""
    work = run_context()
    uri = artifacts_uri(work.conf, KEY.name, 1)
    env.storage.upload(BUCKET, f"{uri.removeprefix(f'gs://{BUCKET}/')}/manifest.json", data=text)
    assert brought(work, uri) is None


async def test_rest_of_a_run_whose_tpu_is_gone_is_said_to_be_lost(env: CloudEnv, client: TPUClient) -> None:
    """Output that was not in the bucket is lost with the TPU; the delete logs that, and continues."""
    work = run_context(script(env, ENDLESS))
    await launch(client, work, await ready(work, client), NODE)
    env.cloud.preempt(NODE_ID)
    with pytest.raises(ArtifactsLost, match="lost with it"):
        await asyncio.to_thread(save_rest, work)
