# SPDX-License-Identifier: Apache-2.0
"""A new machine continues where the lost one was: the newest whole checkpoint is restored before anything runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from airflow_tpu.core.run.job import RunRef
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import LONG_GRACE, until

SECOND = RunRef("run", 2)


@pytest.fixture
def lost_run(run: MirroredRun) -> MirroredRun:
    """A run that was killed with its machine after its third checkpoint was safe."""
    ref = run.start()
    for step in (1, 2, 3):
        run.mirrored(ref, step)
    run.machine.kill_all()
    shutil.rmtree(run.machine.attempt().parent)
    return run


def damage(bucket: CheckpointServer, step: int, name: str, content: bytes | None) -> None:
    """Replace an object of a checkpoint, or delete it."""
    blob = bucket.objects[f"attempt-1/{step:012d}.step-{step:010d}/{name}"]
    if content is None:
        blob.delete()
    else:
        blob.upload_from_string(content)


def test_a_new_machine_goes_on_from_the_newest_checkpoint(lost_run: MirroredRun, moved_run: MirroredRun) -> None:
    """The second attempt finds the third step byte for byte, gets its path, and counts on from there."""
    ref = moved_run.start(attempt=2)
    moved_run.mirrored(ref, 4)
    log = moved_run.machine.log(ref).decode()
    restored = moved_run.checkpoints / "step-0000000003"
    assert f"counts from 3; TRC_RESUME={restored}\n" in log
    assert "restored checkpoint step-0000000003 (step 3), saved by attempt 1 at " in log
    assert (restored / "shards" / "0").read_text() == "state of step 3"
    result = moved_run.machine.stop(LONG_GRACE, ref)["result"]
    assert (result["resumed_step"], result["resumed_attempt"], result["last_durable_step"]) == (3, 1, 5)
    assert result["resumed_saved_at"] < result["started_at"]


def test_attempts_never_overwrite_each_other(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The second attempt writes below its own folder; the oldest of the first leave when newer ones are safe."""
    ref = moved_run.start(attempt=2)
    moved_run.mirrored(ref, 4)
    until(lambda: bucket.steps == [2, 3, 4])
    assert {folder.split("/")[0] for folder in bucket.folders if folder.endswith("4")} == {"attempt-2"}
    assert {folder.split("/")[0] for folder in bucket.folders if folder.endswith("3")} == {"attempt-1"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("shards/0", None, "shards/0 is missing"),
        ("shards/0", b"state of", "shards/0 has 8 bytes instead of 15"),
        ("shards/0", b"state of step 4", "shards/0 has another checksum than its manifest says"),
        ("MANIFEST.json", None, "it has no manifest"),
        ("MANIFEST.json", b"{", "Expecting property name"),
        ("MANIFEST.json", b'{"files": [{"path": "../x", "size": 1}]}', "its manifest names '../x'"),
        ("MANIFEST.json", b'{"schema_version": 2}', "its manifest has version 2, this runner reads version 1"),
    ],
)
def test_a_torn_checkpoint_is_passed_over_for_an_older_one(
    lost_run: MirroredRun,
    moved_run: MirroredRun,
    bucket: CheckpointServer,
    name: str,
    content: bytes | None,
    reason: str,
) -> None:
    """Whatever is wrong with the newest checkpoint is named in the log, and the one before it is restored."""
    damage(bucket, 3, name, content)
    moved_run.count_to(0)
    ref = moved_run.start(attempt=2)
    until(lambda: b"counts from 2" in moved_run.machine.log(ref))
    log = moved_run.machine.log(ref).decode()
    assert f"skipping checkpoint step-0000000003 of attempt 1: {reason}" in log
    assert os.listdir(moved_run.checkpoints) == ["step-0000000002"]


def test_a_bucket_with_a_key_of_its_own_is_restored_from(
    run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """Its listings show no checksums: each object is asked for its own, so a damaged checkpoint is still recognised."""
    bucket.encrypt()
    ref = run.start()
    for step in (1, 2, 3):
        run.mirrored(ref, step)
    run.machine.kill_all()
    damage(bucket, 3, "shards/0", b"state of step 4")
    moved_run.count_to(0)
    ref = moved_run.start(attempt=2)
    until(lambda: b"counts from 2" in moved_run.machine.log(ref))
    log = moved_run.machine.log(ref).decode()
    assert "skipping checkpoint step-0000000003 of attempt 1: shards/0 has another checksum than its manifest" in log


def test_objects_without_an_md5_are_restored(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """A checkpoint that a person has copied in parts is composite, so that only its CRC-32C is known: it is good."""
    for blob in list(bucket.objects.values()):
        if not blob.name.endswith(".json"):
            blob.compose([blob])
    ref = moved_run.start(attempt=2)
    until(lambda: b"counts from 3" in moved_run.machine.log(ref))


def test_a_step_that_was_torn_can_be_saved_again(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The second attempt's own checkpoint of the torn step counts, and a third machine gets it."""
    damage(bucket, 3, "shards/0", None)
    ref = moved_run.start(attempt=2)
    moved_run.mirrored(ref, 3)
    assert bucket.newest == (3, "attempt-2/000000000003.step-0000000003")


def test_no_whole_checkpoint_among_several_is_no_new_start(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """With every checkpoint torn the attempt ends with 66 before the script starts: its work is not thrown away."""
    for step in (1, 2, 3):
        damage(bucket, step, "vocabulary", None)
    result = moved_run.machine.result(moved_run.start(attempt=2))
    assert (result["exit_code"], result["step"]) == (66, "restore")
    assert b"counts from" not in moved_run.machine.log(SECOND)


def test_a_bucket_that_may_not_be_listed_is_no_new_start(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """403 on the listing ends the attempt with 77 in the step restore, without another try or a start of the script."""
    bucket.fault("403", op="objects.list")
    result = moved_run.machine.result(moved_run.start(attempt=2))
    assert (result["exit_code"], result["step"], result["checkpoint_durable"]) == (77, "restore", False)
    assert b"service account may not use" in moved_run.machine.log(SECOND)
    assert b"counts from" not in moved_run.machine.log(SECOND)


@pytest.mark.soak
def test_storage_that_is_down_is_no_new_start(moved_run: MirroredRun, bucket: CheckpointServer) -> None:
    """When nothing listens where the bucket should be, a bounded number of tries ends with 74 in the step restore."""
    bucket.url = "http://127.0.0.1:9"
    ref = moved_run.start(attempt=2)
    until((moved_run.machine.attempt(ref) / "exit.json").exists, 120.0)
    result = moved_run.machine.result(ref)
    assert (result["exit_code"], result["step"]) == (74, "restore")
    assert b"counts from" not in moved_run.machine.log(ref)


def test_short_trouble_delays_a_restore_and_no_more(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """503 on the listing, an answer that is lost and a cut download are tried again."""
    bucket.fault("503", op="objects.list")
    bucket.fault("lose-response", method="POST", object="*attempts/2.json")
    bucket.fault("abort", op="objects.media", object="*shards/0")
    ref = moved_run.start(attempt=2)
    until(lambda: b"counts from 3" in moved_run.machine.log(ref))


def test_checkpoints_on_the_machine_are_not_fetched_again(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A second attempt on the same machine resumes from its disk, and the bucket serves nothing."""
    first = run.start()
    run.mirrored(first, 2)
    run.machine.stop(LONG_GRACE, first)
    run.start(attempt=2)
    until(lambda: b"counts from 3; TRC_RESUME=None" in run.machine.log(SECOND))
    assert bucket.requests.get("objects.media", 0) == 0


def test_a_half_written_rest_on_the_machine_is_no_checkpoint(lost_run: MirroredRun, moved_run: MirroredRun) -> None:
    """What a killed attempt left under a temporary name gives way to the checkpoint from the bucket."""
    rest = Path(moved_run.checkpoints, ".step-0000000004.77.tmp")
    rest.mkdir(parents=True)
    ref = moved_run.start(attempt=2)
    until(lambda: b"counts from 3" in moved_run.machine.log(ref))
    assert not rest.exists()


def test_a_run_may_be_stopped_while_its_checkpoint_arrives(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """A stop during the restore ends the attempt in that step without starting the script."""
    bucket.faults.add(
        {"point": "gcs.request", "match": {"op": "objects.list"}, "params": {"action": "delay", "seconds": 30}}
    )
    ref = moved_run.start(attempt=2)
    until(lambda: bucket.faults.unused() == [])
    result = moved_run.machine.stop(5.0, ref)["result"]
    assert (result["step"], result["stopped"]) == ("restore", True)
    assert b"counts from" not in moved_run.machine.log(ref)
