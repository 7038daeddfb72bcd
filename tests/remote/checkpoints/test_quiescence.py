# SPDX-License-Identifier: Apache-2.0
"""Frameworks that write no manifest: their files are kept as a set, taken when nothing moves."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from airflow_tpu.core.run.job import RunRef
from checkpoints.quiescence import Quiescence
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import LONG_GRACE, until

SECOND = RunRef("run", 2)
# Saves when told to; ends well when asked to stop, after one more save.
TORCH_LIKE = """
save() {
    mkdir -p $TRC_CHECKPOINT_DIR/checkpoint-$1
    head -c 100000 /dev/zero | tr '\\0' $1 > $TRC_CHECKPOINT_DIR/checkpoint-$1/model.pt
    ln -sfn checkpoint-$1 $TRC_CHECKPOINT_DIR/latest
    echo "{\\"step\\": $1}" > $TRC_OUTPUT_DIR/progress.json
    echo saved $1
}
ls -A $TRC_CHECKPOINT_DIR; cat $TRC_CHECKPOINT_DIR/latest/model.pt | head -c 1; echo " resumes $TRC_RESUME"
trap 'save 9; exit 75' TERM
n=1
while :; do
    if [ $n -le $(cat $ALLOW) ]; then save $n; n=$((n + 1)); fi
    sleep 0.05
done
"""


def start(run: MirroredRun, attempt: int = 1, **fields: Any) -> RunRef:
    """Start the script above."""
    return run.start("sh", "-c", TORCH_LIKE, attempt=attempt, **fields)


def test_files_that_keep_still_become_a_set(run: MirroredRun, bucket: CheckpointServer) -> None:
    """All files and links are kept together, with the step that the script reports and a manifest of our making."""
    ref = start(run)
    run.mirrored(ref, 1)
    manifest = bucket.manifests[max(bucket.manifests)]  # a slow save may have looked quiet in its middle
    assert [entry["path"] for entry in manifest["files"]] == ["checkpoint-1/model.pt"]
    assert manifest["links"] == {"latest": "checkpoint-1"}
    assert manifest["step"] == 1
    assert bucket.newest is not None


def test_what_an_older_set_has_is_not_uploaded_again(run: MirroredRun, bucket: CheckpointServer) -> None:
    """The second set holds both files, and what the bucket had already was copied inside it."""
    ref = start(run)
    run.mirrored(ref, 1)
    run.mirrored(ref, 2)
    assert bucket.requests["objects.rewrite"] >= 1
    newest = bucket.manifests[max(bucket.manifests)]
    assert [entry["path"] for entry in newest["files"]] == ["checkpoint-1/model.pt", "checkpoint-2/model.pt"]


def test_a_new_machine_finds_the_files_where_they_were(
    run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The next attempt gets the whole directory back, with links and its path in TRC_RESUME; it uploads nothing."""
    ref = start(run)
    run.mirrored(ref, 2)
    run.machine.kill_all()
    run.count_to(0)
    second = start(moved_run, attempt=2)
    until(lambda: b"resumes" in moved_run.machine.log(second))
    assert f"checkpoint-1\ncheckpoint-2\nlatest\n2 resumes {moved_run.checkpoints}\n" in (
        moved_run.machine.log(second).decode()
    )
    until(lambda: moved_run.mirror(second).get("last_name") == "files")
    assert {folder.split("/")[0] for folder in bucket.folders} == {"attempt-1"}


def test_the_last_save_need_not_keep_still(run: MirroredRun, bucket: CheckpointServer) -> None:
    """When the script has ended by itself nothing is written any more: what it saved last is kept at once."""
    ref = start(run, mirror_secs=3600.0)
    until(lambda: b"resumes" in run.machine.log(ref))
    result = run.machine.stop(LONG_GRACE, ref)["result"]
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (75, True, 9)


def test_files_of_a_killed_writer_are_not_trusted(run: MirroredRun, bucket: CheckpointServer) -> None:
    """What moved just before a kill may be half-written: it is not kept, and the result says so."""
    ref = start(run, mirror_secs=3600.0)
    run.count_to(1)
    until(lambda: b"saved 1" in run.machine.log(ref))
    os.kill(run.machine.recorded()["pid"], signal.SIGKILL)
    result = run.machine.result(ref)
    assert (result["signal"], result["checkpoint_durable"], bucket.manifests) == (signal.SIGKILL, False, {})


def test_a_set_waits_until_nothing_moves(tmp_path: Path) -> None:
    """Files are taken when the last change, of whichever of them, is long enough ago."""
    quiescence = Quiescence(tmp_path, quiet_secs=5.0)
    (tmp_path / "a").write_text("1")
    assert quiescence.poll(100.0, None) is None
    (tmp_path / "b").write_text("1")
    assert quiescence.poll(104.0, None) is None
    assert quiescence.poll(106.0, None) is None
    taken = quiescence.poll(109.0, 7)
    assert taken is not None
    assert (sorted(taken.files), taken.step, taken.left_out) == (["a", "b"], 7, ())


def test_a_file_that_never_keeps_still_is_left_out_in_the_end(tmp_path: Path) -> None:
    """A log that grows all the time holds the others up for a minute, not for ever."""
    quiescence = Quiescence(tmp_path, quiet_secs=5.0)
    (tmp_path / "model").write_text("1")
    taken = None
    for second in range(0, 66, 2):
        with (tmp_path / "events").open("a") as log:
            log.write("x")
        taken = quiescence.poll(float(second), None) or taken
    assert taken is not None
    assert (sorted(taken.files), taken.left_out) == (["model"], ("events",))


def test_temporary_names_and_links_out_are_no_part_of_a_set(tmp_path: Path) -> None:
    """Half-written files by their names, links out of the directory and pipes stay behind."""
    for name in (".hidden", "model.tmp", "ckpt-3_temp", "model"):
        (tmp_path / name).write_text("1")
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    taken = Quiescence(tmp_path, quiet_secs=1.0).final(0.0, None, trusted=True)
    assert taken is not None
    assert (list(taken.files), taken.links) == (["model"], {})
