# SPDX-License-Identifier: Apache-2.0
"""While a run trains, its newest complete checkpoint is in the bucket; when it has ended, its last one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.source.bundle import Bundle
from localcloud.testing import storage_bucket
from tests.remote.checkpoint_server import URI, CheckpointServer
from tests.remote.mirrored_run import COUNTING_TRAINING, MirroredRun
from tests.remote.vm import LONG_GRACE, Machine, empty_tar, processes_with, request, until


def mirror_pids(machine: Machine) -> list[int]:
    """The mirror processes of this home's runs."""
    return [pid for pid in processes_with(f"HOME={machine.home}") if b"\0mirror\0" in command_line(pid)]


def command_line(pid: int) -> bytes:
    """What a process was started with; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_the_newest_checkpoint_is_in_the_bucket_while_the_run_goes_on(
    run: MirroredRun, bucket: CheckpointServer
) -> None:
    """A checkpoint that the script commits becomes complete in the bucket, and the heartbeat says which one it is."""
    ref = run.start()
    run.mirrored(ref, 2)
    assert bucket.newest == (2, "attempt-1/000000000002.step-0000000002")
    assert run.mirror(ref)["pending"] is None
    assert run.mirror(ref)["error"] == ""


def test_what_is_at_risk_is_said_once_while_the_run_goes_on(run: MirroredRun) -> None:
    """A command that writes beside its script learns in its log that a TPU that is taken away takes the files along."""
    ref = run.start("sh", "-c", "echo 1 > model.h5; until [ -e enough ]; do sleep 0.1; done")
    until(lambda: b"model.h5 (1 file(s) in all) lies in the working directory" in run.machine.log())
    (run.machine.attempt() / "bundle" / "enough").touch()
    assert run.machine.result(ref)["exit_code"] == 0
    assert run.machine.log().count(b"lies in the working directory") == 1


def test_the_newest_three_stay(run: MirroredRun, bucket: CheckpointServer) -> None:
    """Older checkpoints leave the bucket once newer ones are safe there."""
    ref = run.start()
    for step in (1, 2, 3, 4, 5):
        run.mirrored(ref, step)
    until(lambda: bucket.folders == {f"attempt-1/{step:012d}.step-{step:010d}" for step in (3, 4, 5)})
    assert bucket.steps == [3, 4, 5]


def test_a_stop_waits_until_the_last_checkpoint_is_safe(run: MirroredRun, bucket: CheckpointServer) -> None:
    """What the script saves when it is asked to stop is in the bucket before its result is there."""
    ref = run.start(mirror_secs=3600.0)
    run.count_to(3)
    until((run.checkpoints / "step-0000000003").exists)
    result = run.machine.stop(LONG_GRACE, ref)["result"]
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (75, True, 4)
    assert bucket.newest == (4, "attempt-1/000000000004.step-0000000004")


def test_a_killed_run_leaves_its_last_checkpoint_safe(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A command that is killed from outside has its committed checkpoint pushed before the result is there."""
    ref = run.start(mirror_secs=3600.0)
    run.count_to(2)
    until((run.checkpoints / "step-0000000002").exists)
    os.kill(run.machine.recorded()["pid"], signal.SIGKILL)
    result = run.machine.result(ref)
    assert (result["signal"], result["checkpoint_durable"], result["last_durable_step"]) == (signal.SIGKILL, True, 2)


def test_a_run_at_its_deadline_leaves_its_last_checkpoint_safe(run: MirroredRun, bucket: CheckpointServer) -> None:
    """At the deadline the script saves, and what it saves is in the bucket when the result is there."""
    run.count_to(2)
    ref = run.start(mirror_secs=3600.0, deadline=1.0)
    result = run.machine.result(ref)
    assert (result["deadline"], result["stopped"]) == (True, False)
    assert bucket.steps == ([] if result["last_durable_step"] is None else [result["last_durable_step"]])


def test_a_run_without_checkpoints_has_none_that_are_safe(run: MirroredRun) -> None:
    """A script that saves nothing ends as usual, and its result promises nothing."""
    result = run.machine.result(run.start("true"))
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (0, False, None)


def test_without_a_place_nothing_is_mirrored(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A job that names no place for checkpoints asks the bucket nothing."""
    result = run.machine.result(run.start("true", checkpoints_uri=""))
    assert {result[name] for name in protocol.CHECKPOINT_FIELDS} == {None}
    assert bucket.requests == {}


def test_the_mirror_dies_with_its_supervisor(run: MirroredRun) -> None:
    """Nothing of ours outlives a supervisor that was killed."""
    ref = run.start()
    run.mirrored(ref, 1)
    assert len(mirror_pids(run.machine)) == 1
    os.kill(run.machine.recorded()["supervisor_pid"], signal.SIGKILL)
    until(lambda: mirror_pids(run.machine) == [])


def test_a_mirror_that_was_killed_is_replaced_for_the_last_push(run: MirroredRun, bucket: CheckpointServer) -> None:
    """When memory ran out and took the mirror, the last checkpoint still gets into the bucket."""
    ref = run.start()
    run.mirrored(ref, 1)
    (mirror,) = mirror_pids(run.machine)
    os.kill(mirror, signal.SIGKILL)
    until(lambda: mirror not in mirror_pids(run.machine))
    result = run.machine.stop(LONG_GRACE, ref)["result"]
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (75, True, 2)


def hold(bucket: CheckpointServer, seconds: float) -> None:
    """Let the first file of the second checkpoint take so long, once."""
    match = {"op": "objects.insert", "object": "*000000000002*shards/0"}
    delay = {"action": "delay", "seconds": seconds}
    bucket.faults.add({"point": "gcs.request", "match": match, "times": 1, "params": delay})


def test_a_run_that_ends_well_waits_while_its_last_checkpoint_travels(
    run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The grace is for a run that is stopped; one that ends by itself has until its deadline for that."""
    hold(bucket, 6.0)
    run.count_to(2)
    ref = run.start("env", "LAST=2", *COUNTING_TRAINING, grace_secs=0.5)
    result = run.machine.result(ref)
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (0, True, 2)
    assert bucket.faults.unused() == []


def test_a_deadline_bounds_the_wait_for_the_last_checkpoint(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A checkpoint that never arrives keeps no TPU beyond the deadline, and the log says that it is not safe."""
    hold(bucket, 3600.0)
    run.count_to(2)
    ref = run.start("env", "LAST=2", *COUNTING_TRAINING, grace_secs=0.5, deadline=time.time() + 12.0)
    result = run.machine.result(ref)
    assert (result["exit_code"], result["deadline"], result["checkpoint_durable"]) == (0, False, False)
    assert b"the run has ended before its last checkpoint was safe in the bucket" in run.machine.log(ref)


def test_a_mirror_that_is_killed_while_it_finishes_is_replaced(run: MirroredRun, bucket: CheckpointServer) -> None:
    """The end of a mirror that a signal ended is not the end of its work."""
    hold(bucket, 3600.0)
    run.count_to(2)
    ref = run.start("env", "LAST=2", *COUNTING_TRAINING)
    command = run.machine.recorded(ref)["pid"]
    until(lambda: not command_line(command) and "2" in str(run.mirror(ref).get("pending")))
    (mirror,) = mirror_pids(run.machine)
    os.kill(mirror, signal.SIGKILL)
    result = run.machine.result(ref)
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (0, True, 2)


def test_the_mirror_is_no_leftover_of_the_command(run: MirroredRun) -> None:
    """What the command leaves behind is counted and ended without our own helper."""
    ref = run.start("sh", "-c", "sleep 1000 & exit 3")
    assert run.machine.result(ref)["leftovers_killed"] == 1


def test_a_checkpoint_that_belies_its_manifest_is_not_kept(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A file of the right size with other content than the script's manifest says does not become a checkpoint."""
    ref = run.start()
    run.mirrored(ref, 1)
    stale = shutil.copytree(run.checkpoints / "step-0000000001", run.allow.with_name("stale"))
    manifest = stale / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace('"step": 1', '"step": 2'))
    (stale / "shards" / "0").write_text("state of step 9")
    stale.rename(run.checkpoints / "step-0000000002")  # whole at once, as a script commits it
    until(lambda: b"step-0000000002" in run.machine.log(ref))
    os.kill(run.machine.recorded()["pid"], signal.SIGKILL)
    assert run.machine.result(ref)["last_durable_step"] == 1
    assert bucket.steps == [1]
    assert b"step-0000000002 is not mirrored: shards/0 has another checksum" in run.machine.log(ref)


def test_a_checkpoint_of_another_version_is_left_alone(run: MirroredRun, bucket: CheckpointServer) -> None:
    """A manifest that this runner cannot read is named in the log once; other checkpoints are mirrored all the same."""
    ref = run.start()
    run.mirrored(ref, 1)
    foreign = shutil.copytree(run.checkpoints / "step-0000000001", run.allow.with_name("foreign"))
    (foreign / "MANIFEST.json").write_text('{"schema_version": 2}')
    foreign.rename(run.checkpoints / "step-0000000007")
    run.mirrored(ref, 2)
    result = run.machine.stop(LONG_GRACE, ref)["result"]
    assert (result["checkpoint_durable"], result["last_durable_step"]) == (True, 3)
    assert bucket.steps == [1, 2, 3]
    said = "checkpoint step-0000000007 is not mirrored: its manifest has version 2, this runner reads version 1"
    assert run.machine.log(ref).decode().count(said) == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_mirror_counts_from_what_is_there(run: MirroredRun, bucket: CheckpointServer, attempt: int) -> None:
    """An attempt on the same machine uploads nothing that the bucket has already, whichever attempt had saved it."""
    ref = run.start()
    run.mirrored(ref, 1)
    run.machine.stop(LONG_GRACE, ref)
    before = bucket.steps
    again = RunRef("run", attempt + 1)
    run.count_to(0)
    run.start("sleep", "1000", attempt=again.attempt)
    until(lambda: run.mirror(again).get("last_step") == 2)
    assert bucket.steps == before
    assert f"attempt-{again.attempt}" not in {folder.split("/")[0] for folder in bucket.folders}


# Saves, fills the disk with its output and its log, and ends well; or waits to be asked to.
FILL = "echo weights > $TRC_CHECKPOINT_DIR/model; yes > $TRC_OUTPUT_DIR/filler; yes; "
FULL_DISK = {
    "ended by itself": FILL + "exit 0",
    "stopped": "trap : TERM; " + FILL + "until [ -e $TRC_STOP_FILE ]; do sleep 0.05; done; exit 0",
}


@pytest.mark.parametrize("kind", FULL_DISK)
def test_what_was_saved_before_the_disk_was_full_is_in_the_bucket(
    run: MirroredRun, bucket: CheckpointServer, tmp_path: Path, kind: str
) -> None:
    """Claim, manifests, state and stop file need no byte of a disk that the script has filled; output is copied."""
    machine, namespace = run.machine, ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    disk = machine.home / protocol.ROOT_DIR
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=2m none {disk}"
    if shutil.which("unshare") is None or subprocess.run([*namespace, mount], check=False).returncode != 0:
        pytest.skip("no mount namespace here")
    runner = f"{machine.python} {machine.home}/runner/runner.py"
    stop = f"until [ -s {machine.attempt()}/output/filler ]; do sleep 0.05; done; {runner} stop --run run --attempt 1"
    script = f"""
        {mount} && {runner} start > /dev/null || exit 9
        {stop if kind == "stopped" else "true"} > /dev/null
        until [ -s {machine.attempt()}/exit.json ]; do sleep 0.05; done
        {runner} push --run run --attempt 1 --to gs://{bucket.name}/artifacts > /dev/null || exit 7
        cat {machine.attempt()}/exit.json
        """
    job = JobSpec("run", 1, ("sh", "-c", FULL_DISK[kind]), checkpoints_uri=URI, mirror_secs=0.1, grace_secs=LONG_GRACE)
    environment = machine.environment(STORAGE_EMULATOR_HOST=bucket.url)
    data = request(job, Bundle((), empty_tar()))
    done = subprocess.run([*namespace, script], input=data, env=environment, capture_output=True, check=True)
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["checkpoint_durable"], result["mirror_error"]) == (0, True, "")
    assert len(bucket.folders) == 1
    assert storage_bucket(bucket.url, bucket.name).blob("artifacts/manifest.json").exists()
