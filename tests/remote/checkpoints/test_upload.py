# SPDX-License-Identifier: Apache-2.0
"""Storage trouble never ends a run: it is tried again, logged once, and what could not be saved is reported."""

from __future__ import annotations

import os
import signal

from tests.remote.checkpoint_server import PREFIX, CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import LONG_GRACE, until


def test_short_trouble_goes_unnoticed(run: MirroredRun, bucket: CheckpointServer) -> None:
    """503, a cut upload, a lost answer to a file and to the manifest: the checkpoint becomes durable all the same."""
    bucket.fault("503", op="objects.insert", object="*vocabulary")
    bucket.fault("abort", op="objects.insert", object="*shards/0")
    bucket.fault("lose-response", op="objects.insert", object="*vocabulary")
    bucket.fault("lose-response", op="objects.insert", object="*MANIFEST.json")
    ref = run.start()
    run.mirrored(ref, 1)
    assert run.mirror(ref)["error"] == ""
    assert bucket.steps == [1]
    assert b"airflow-tpu" not in run.machine.log(ref)


def test_lasting_trouble_is_told_once_and_overcome(run: MirroredRun, bucket: CheckpointServer) -> None:
    """While the bucket refuses, the run continues and its status says why; then the newest step is saved."""
    bucket.fault("403", times=3, op="objects.insert", object="*vocabulary")
    ref = run.start()
    run.count_to(1)
    until(lambda: "403" in run.mirror(ref).get("error", ""))
    assert run.mirror(ref)["pending"] == "step-0000000001"
    run.mirrored(ref, 2)
    assert run.mirror(ref)["error"] == ""
    log = run.machine.log(ref).decode()
    assert log.count("checkpoints cannot be mirrored for now, retrying: 403") == 1
    assert log.count("checkpoints are mirrored again") == 1


def test_a_bucket_that_refuses_to_the_end_does_not_fail_the_run(run: MirroredRun, bucket: CheckpointServer) -> None:
    """The result of a run that has ended is there after the grace, with its status and the truth about its work."""
    bucket.fault("403", times=1000, op="objects.insert", object="*shards/0")
    ref = run.start(grace_secs=1.0)
    run.count_to(1)
    until(lambda: run.mirror(ref).get("error"))
    os.kill(run.machine.recorded()["pid"], signal.SIGTERM)  # the script takes its time; only the mirror has the grace
    result = run.machine.result(ref)
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (75, False, None)
    assert "403" in result["mirror_error"]
    assert bucket.steps == []
    bucket.faults.clear()


def test_a_bucket_that_keeps_its_old_checkpoints_is_told(run: MirroredRun, bucket: CheckpointServer) -> None:
    """403 on deletes leaves older checkpoints where they are; the newest is durable, and the status says what is."""
    bucket.fault("403", times=1, op="objects.delete")
    ref = run.start()
    for step in (1, 2, 3, 4):
        run.mirrored(ref, step)
    until(lambda: "old checkpoints cannot be removed: 403" in run.mirror(ref)["error"])
    assert bucket.steps == [1, 2, 3, 4]
    run.mirrored(ref, 5)
    until(lambda: bucket.steps == [3, 4, 5])


def test_a_checkpoint_that_was_torn_in_the_bucket_is_saved_again(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A damaged copy does not count as safe: the next attempt's mirror writes its own."""
    ref = run.start()
    run.mirrored(ref, 1)
    run.machine.stop(LONG_GRACE, ref)
    place = "attempt-1/000000000002.step-0000000002"
    bucket.objects[f"{place}/vocabulary"].upload_from_string("something else")
    again = run.start("sleep", "1000", attempt=2)
    until(lambda: run.mirror(again).get("last_step") == 2)
    assert bucket.newest == (2, "attempt-2/000000000002.step-0000000002")


def test_what_a_bucket_with_a_key_of_its_own_holds_is_not_uploaded_again(
    run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The next attempt finds its checkpoint in the bucket by the checksums that only the objects themselves show."""
    bucket.encrypt()
    ref = run.start()
    run.mirrored(ref, 1)
    run.machine.stop(LONG_GRACE, ref)
    before = dict(bucket.requests)
    again = run.start("sleep", "1000", attempt=2)
    until(lambda: run.mirror(again).get("last_step") == 2)
    assert bucket.newest == (2, "attempt-1/000000000002.step-0000000002")
    assert bucket.requests["objects.insert"] == before["objects.insert"] + 1  # the claim


def test_a_checkpoint_of_another_version_is_never_removed(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A newer release has left a checkpoint: it stays, however many newer ones there are."""
    ref = run.start()
    run.mirrored(ref, 1)
    blob = bucket.objects["attempt-1/000000000001.step-0000000001/MANIFEST.json"]
    blob.upload_from_string(blob.download_as_bytes().replace(b'"schema_version": 1', b'"schema_version": 2'))
    for step in (2, 3, 4, 5):
        run.mirrored(ref, step)
    until(lambda: len(bucket.folders) == 4)
    assert bucket.steps == [1, 3, 4, 5]


def test_a_place_that_holds_another_version_is_not_written(run: MirroredRun, bucket: CheckpointServer) -> None:
    """Where this attempt would write lies a checkpoint of another version: it stays, and the log says so."""
    ref = run.start()
    until(lambda: b"counts from 0" in run.machine.log(ref))
    place = bucket.bucket.blob(f"{PREFIX}/attempt-1/000000000001.step-0000000001/MANIFEST.json")
    content = b'{"schema_version": 2, "step": 0, "files": []}'
    place.upload_from_string(content)
    run.count_to(1)
    until(lambda: b"step-0000000001 is not mirrored: the bucket holds a checkpoint of another" in run.machine.log(ref))
    run.mirrored(ref, 2)
    assert place.download_as_bytes() == content
    assert bucket.newest == (2, "attempt-1/000000000002.step-0000000002")
