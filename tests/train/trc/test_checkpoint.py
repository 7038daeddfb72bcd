# SPDX-License-Identifier: Apache-2.0
"""Checkpoints without any framework: whole or passed over, never half."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trc.checkpoint import MANIFEST, Checkpoint, CheckpointStore, TornCheckpoint
from trc.contract import EXIT_RESUME_REFUSED, EXIT_STORAGE, ContractExit
from trc.crc32c import crc32c_of

CONTENT = bytes(range(256)) * 8


def write_for(step: int) -> Callable[[Path], None]:
    """A stand-in for a framework's save: two files, one below a directory."""

    def write(directory: Path) -> None:
        (directory / "variables.data").write_bytes(CONTENT + str(step).encode())
        (directory / "shards").mkdir()
        (directory / "shards" / "0").write_bytes(b"shard")

    return write


class Shelf:
    """A store and the lines it has said."""

    def __init__(self, directory: Path, digest: str = "d1", keep: int = 3) -> None:
        self.said: list[str] = []
        self.store = CheckpointStore(directory, digest, attempt=2, keep=keep, say=self.said.append)

    def save(self, *steps: int) -> list[Path]:
        return [self.store.commit(step, write_for(step), "periodic").directory for step in steps]

    def newest_step(self) -> int | None:
        found = self.store.newest()
        return None if found is None else found.step


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "checkpoints")


def test_no_directory_means_that_the_run_starts_at_the_beginning(shelf: Shelf) -> None:
    """Before the first checkpoint there is none, and nothing is said about it."""
    assert shelf.store.newest() is None
    assert shelf.said == []


def test_a_checkpoint_comes_back_as_it_was_written(shelf: Shelf) -> None:
    """Step, digest, reason, attempt, metrics and files survive the way through the manifest."""
    made = shelf.store.commit(10, write_for(10), "signal", {"loss": 0.5})
    assert shelf.store.newest() == made
    assert (made.step, made.config_digest, made.reason, made.attempt) == (10, "d1", "signal", 2)
    assert made.metrics == {"loss": 0.5}
    assert [(file.path, file.size) for file in made.files] == [("shards/0", 5), ("variables.data", 2050)]


def test_the_newest_step_counts_not_the_last_written(shelf: Shelf) -> None:
    """Step 9 written after step 10 does not become the newest, as it would in TensorFlow's pointer file."""
    shelf.save(10, 9)
    assert shelf.newest_step() == 10


def test_saving_a_step_again_replaces_it(shelf: Shelf) -> None:
    """A torn checkpoint of the same step does not prevent saving it again."""
    (directory,) = shelf.save(10)
    (directory / "variables.data").write_bytes(b"torn")
    shelf.save(10)
    assert shelf.newest_step() == 10
    assert shelf.said == []


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """Two of four checkpoints remain, and with them nothing that an earlier attempt left half-written."""
    shelf = Shelf(tmp_path, keep=2)
    (tmp_path / ".step-0000000001.99.tmp").mkdir()
    shelf.save(1, 2, 3, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000003", "step-0000000004"]


def test_a_torn_later_step_takes_no_place_among_those_kept(tmp_path: Path) -> None:
    """After a resume from step 2 the torn step 9 does not push whole checkpoints out."""
    shelf = Shelf(tmp_path, keep=2)
    (torn,) = shelf.save(9)
    (torn / "variables.data").unlink()
    shelf.save(2, 3, 4)
    assert shelf.newest_step() == 4
    (tmp_path / "step-0000000004" / MANIFEST).unlink()
    assert shelf.newest_step() == 3


def test_a_failing_save_leaves_no_checkpoint(shelf: Shelf) -> None:
    """A full disk in the middle of a save is an error, and the checkpoint before stays the newest."""
    shelf.save(1)

    def fail(directory: Path) -> None:
        (directory / "half").write_bytes(b"half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        shelf.store.commit(2, fail, "periodic")
    assert shelf.newest_step() == 1


def truncate(directory: Path) -> None:
    (directory / "variables.data").write_bytes(CONTENT)


def empty(directory: Path) -> None:
    (directory / "variables.data").write_bytes(b"")


def flip_a_bit(directory: Path) -> None:
    path = directory / "variables.data"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))


def lose_a_file(directory: Path) -> None:
    (directory / "shards" / "0").unlink()


def lose_the_manifest(directory: Path) -> None:
    (directory / MANIFEST).unlink()


def truncate_the_manifest(directory: Path) -> None:
    manifest = directory / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-20])


def empty_the_manifest(directory: Path) -> None:
    (directory / MANIFEST).write_bytes(b"")


def strip_the_manifest(directory: Path) -> None:
    (directory / MANIFEST).write_text('{"step": 2}')


DAMAGES = [
    (truncate, "2048 bytes instead of 2049"),
    (empty, "0 bytes instead of 2049"),
    (flip_a_bit, "another checksum"),
    (lose_a_file, "shards/0 is missing"),
    (lose_the_manifest, "no manifest"),
    (truncate_the_manifest, "unreadable"),
    (empty_the_manifest, "unreadable"),
    (strip_the_manifest, "unreadable"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_named(
    shelf: Shelf, damage: Callable[[Path], None], reason: str
) -> None:
    """Whatever is broken about the newest, the one before is taken and a line says why."""
    _, newest = shelf.save(1, 2)
    damage(newest)
    assert shelf.newest_step() == 1
    assert len(shelf.said) == 1
    assert newest.name in shelf.said[0]
    assert reason in shelf.said[0]


@pytest.mark.parametrize("damage", [damage for damage, _ in DAMAGES if damage is not lose_the_manifest])
def test_checkpoints_none_of_which_is_whole_refuse_the_resume(shelf: Shelf, damage: Callable[[Path], None]) -> None:
    """Starting from zero would silently throw the run away, so the script ends with 66."""
    for directory in shelf.save(1, 2):
        damage(directory)
    with pytest.raises(ContractExit) as refused:
        shelf.store.newest()
    assert refused.value.code == EXIT_RESUME_REFUSED


def test_directories_that_never_got_a_manifest_are_no_checkpoints(shelf: Shelf) -> None:
    """Nothing was ever durable, so the run starts at the beginning."""
    (directory,) = shelf.save(1)
    lose_the_manifest(directory)
    assert shelf.newest_step() is None


def test_another_configuration_refuses_the_resume(shelf: Shelf) -> None:
    """A checkpoint with another digest ends the script with 66 and names both digests."""
    shelf.save(1)
    with pytest.raises(ContractExit, match=r"d1.*d2") as refused:
        Shelf(shelf.store.directory, digest="d2").store.newest()
    assert refused.value.code == EXIT_RESUME_REFUSED


def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    """An unreachable store ends the script with 74, which is retried, instead of starting the run again."""
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ContractExit) as refused:
        Shelf(tmp_path / "file").store.newest()
    assert refused.value.code == EXIT_STORAGE


@pytest.mark.parametrize(("here", "there", "expected"), [((1, 5), (3,), 5), ((1,), (3, 4), 4), ((), (2,), 2)])
def test_the_newest_of_both_places_is_resumed(
    tmp_path: Path, here: tuple[int, ...], there: tuple[int, ...], expected: int
) -> None:
    """What the pipeline fetched and what is on the disk are looked at together."""
    shelf = Shelf(tmp_path / "here")
    shelf.save(*here)
    Shelf(tmp_path / "there").save(*there)
    found = shelf.store.newest(tmp_path / "there")
    assert found is not None
    assert found.step == expected


def test_a_single_checkpoint_under_any_name_can_be_resumed(tmp_path: Path) -> None:
    """TRC_RESUME may name one checkpoint itself."""
    (directory,) = Shelf(tmp_path / "there").save(7)
    found = Shelf(tmp_path / "here").store.newest(directory.rename(tmp_path / "fetched"))
    assert found is not None
    assert (found.step, found.directory) == (7, tmp_path / "fetched")


@pytest.mark.parametrize("exists", [False, True])
def test_a_named_place_without_a_checkpoint_refuses_the_resume(tmp_path: Path, exists: bool) -> None:
    """The pipeline promised something to resume from; starting over instead would hide that it is gone."""
    place = tmp_path / "there"
    if exists:
        place.mkdir()
    with pytest.raises(ContractExit, match="TRC_RESUME") as refused:
        Shelf(tmp_path / "here").store.newest(place)
    assert refused.value.code == EXIT_RESUME_REFUSED


def test_the_manifest_is_plain_json(shelf: Shelf) -> None:
    """Programs in other languages can read it: a version, the step, and every file with size and checksum."""
    (directory,) = shelf.save(3)
    document = json.loads((directory / MANIFEST).read_text())
    assert (document["schema_version"], document["step"]) == (1, 3)
    assert document["files"][0] == {"path": "shards/0", "size": 5, "crc32c": crc32c_of(directory / "shards" / "0")}


def test_a_directory_without_a_manifest_is_torn(tmp_path: Path) -> None:
    """Reading it raises instead of giving an empty checkpoint."""
    with pytest.raises(TornCheckpoint, match="no manifest"):
        Checkpoint.read(tmp_path)


# RFC 3720, appendix B.4, and the usual check value of "123456789".


def rename_version(directory: Path) -> None:
    """Make a checkpoint one of another release."""
    path = directory / MANIFEST
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))


def test_a_checkpoint_of_another_release_refuses_the_resume(shelf: Shelf) -> None:
    """Resuming from an older one would silently lose work, so the script ends with 66 and names the way out."""
    shelf.store.commit(1, write_for(1), "periodic")
    rename_version(shelf.store.commit(2, write_for(2), "periodic").directory)
    with pytest.raises(ContractExit, match=r"step-0000000002 is of another release: .* version 2") as refused:
        shelf.store.newest()
    assert refused.value.code == EXIT_RESUME_REFUSED


def test_a_checkpoint_of_another_release_is_never_removed(tmp_path: Path) -> None:
    """However many newer ones there are, it stays; those of this release are removed as ever."""
    store = CheckpointStore(tmp_path, "digest", keep=1)
    rename_version(store.commit(1, write_for(1), "periodic").directory)
    for step in (2, 3):
        store.commit(step, write_for(step), "periodic")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000001", "step-0000000003"]
