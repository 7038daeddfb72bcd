"""While a run goes on, its newest complete checkpoint is in the bucket, whatever the bucket does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.machine import Machine, until
from tests.remote.vault import MirroredRun, Vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    """An empty bucket."""
    with Vault(tmp_path / "gcs") as running:
        yield running


@pytest.fixture
def run(oldest_machine: Machine, vault: Vault, tmp_path: Path) -> MirroredRun:
    """A run that may not count yet."""
    (tmp_path / "allow").write_text("0")
    return MirroredRun(oldest_machine, vault, tmp_path / "allow")


def test_the_newest_checkpoint_is_in_the_bucket_while_the_run_goes_on(run: MirroredRun, vault: Vault) -> None:
    """A checkpoint that the script commits becomes complete in the bucket, and the heartbeat says which one it is."""
    ref = run.start()
    run.mirrored(ref, 2)
    assert vault.newest is not None
    assert vault.newest.step == 2
    assert run.mirror(ref)["pending"] is None
    assert run.mirror(ref)["error"] == ""


def test_the_newest_three_stay(run: MirroredRun, vault: Vault) -> None:
    """Older checkpoints leave the bucket once newer ones are safe there."""
    ref = run.start()
    for step in (1, 2, 3, 4, 5):
        run.mirrored(ref, step)
    until(lambda: vault.folders == {f"attempt-1/{step:012d}.step-{step:010d}" for step in (3, 4, 5)})
    assert vault.steps == [3, 4, 5]


def test_a_stop_waits_until_the_last_checkpoint_is_safe(run: MirroredRun, vault: Vault) -> None:
    """What the script saves when it is asked to stop is in the bucket before its result is there."""
    ref = run.start(mirror_secs=3600.0)
    run.count_to(3)
    until(lambda: b"counts from 0" in run.machine.log() and len(os.listdir(run.checkpoints)) == 3)
    result = run.machine.stop(20.0, ref)["result"]
    assert (result["exit_code"], result["checkpoint_durable"], result["last_durable_step"]) == (75, True, 4)
    assert vault.newest is not None
    assert vault.newest.step == 4
