# SPDX-License-Identifier: Apache-2.0
"""A run that resumes with other code than its checkpoint was saved with says so, or is refused."""

from __future__ import annotations

import shutil

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import LONG_GRACE, until

OLD, NEW = "a" * 64, "b" * 64
CHANGED = "airflow-tpu: the code has changed: the checkpoint was saved by "


def log_of(run: MirroredRun, ref: RunRef) -> str:
    """The log of an attempt whose script has started."""
    until(lambda: b"counts from" in run.machine.log(ref))
    return run.machine.log(ref).decode()


@pytest.fixture
def lost_run(run: MirroredRun) -> MirroredRun:
    """A run that was lost with its machine after a checkpoint of the old code was safe."""
    run.mirrored(run.start(code=OLD), 2)
    run.machine.kill_all()
    shutil.rmtree(run.machine.attempt().parent)
    return run


@pytest.mark.usefixtures("lost_run")
def test_resume_with_changed_code_is_told(moved_run: MirroredRun) -> None:
    """The log of the run names both codes, before the script writes its first line; the run resumes."""
    log = log_of(moved_run, moved_run.start(attempt=2, code=NEW))
    assert f"{CHANGED}attempt 1 with aaaaaaaaaaaa, and this attempt has bbbbbbbbbbbb; the model will be" in log
    assert "counts from 2" in log
    assert log.index(CHANGED) < log.index("counts from")


@pytest.mark.usefixtures("lost_run")
def test_resume_with_the_same_code_says_nothing(moved_run: MirroredRun) -> None:
    """Another machine with the same code is a resume like any other."""
    assert CHANGED not in log_of(moved_run, moved_run.start(attempt=2, code=OLD, refuse_changed_code=True))


@pytest.mark.usefixtures("lost_run")
def test_resume_with_changed_code_is_refused_where_the_job_says_so(moved_run: MirroredRun) -> None:
    """The script does not start, the checkpoint stays in the bucket, and the log says how to go on."""
    ref = moved_run.start(attempt=2, code=NEW, refuse_changed_code=True)
    result = moved_run.machine.result(ref)
    assert (result["step"], result["exit_code"]) == (protocol.RESTORE_STEP, protocol.EXIT_RESUME_REFUSED)
    log = moved_run.machine.log(ref).decode()
    assert f"{CHANGED}attempt 1 with aaaaaaaaaaaa" in log
    assert "Not resuming, as on_changed_code says: start a new run" in log
    assert moved_run.bucket.newest == (2, "attempt-1/000000000002.step-0000000002")
    assert "counts from 2" in log_of(moved_run, moved_run.start(attempt=3, code=OLD, refuse_changed_code=True))


def test_checkpoints_on_the_same_machine_are_compared_too(run: MirroredRun) -> None:
    """What an earlier attempt left on the disk was saved with its code, whether or not it reached the bucket."""
    first = run.start(code=OLD)
    run.mirrored(first, 2)
    run.machine.stop(LONG_GRACE, first)
    refused = run.machine.result(run.start(attempt=2, code=NEW, refuse_changed_code=True))
    assert (refused["step"], refused["exit_code"]) == (protocol.RESTORE_STEP, protocol.EXIT_RESUME_REFUSED)
    assert f"{CHANGED}an earlier attempt on this machine with aaaaaaaaaaaa" in log_of(
        run, run.start(attempt=3, code=NEW)
    )
    assert CHANGED not in log_of(run, run.start(attempt=4, code=NEW, refuse_changed_code=True))


def test_claim_without_code_is_unknown_code(
    lost_run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """What saved the checkpoint cannot be compared: that is said, and no reason to call the code the same."""
    bucket.objects["attempts/1.json"].delete()
    log = log_of(moved_run, moved_run.start(attempt=2, code=NEW))
    assert f"{CHANGED}attempt 1 with unknown code" in log
