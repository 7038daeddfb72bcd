# SPDX-License-Identifier: Apache-2.0
"""The next TPU starts without the index: wheels are kept in the bucket, and no damage there breaks a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from packages.wheel_cache import WheelCache
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.installing import WHEEL, Index, image, install, toy_wheel
from tests.remote.vm import Machine

MANIFEST = "MANIFEST.json"
URI = "gs://checkpoints/airflow-tpu-wheels"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A package index with the package."""
    with Index(toy_wheel(tmp_path / "index")) as running:
        yield running


@pytest.fixture
def next_machine(tmp_path: Path, machine: Machine) -> Iterator[Machine]:
    """Another machine with the same image, which knows nothing of the first."""
    other = Machine(tmp_path / "other-home", machine.python)
    image(other)
    yield other
    other.kill_all()


def run(machine: Machine, index: Index, bucket: CheckpointServer) -> tuple[str, str]:
    """Run a job that uses the package; return what it printed last, and its whole log."""
    login = {"STORAGE_EMULATOR_HOST": bucket.url}
    result, log = install(machine, index.environment, login=login, wheels_uri=URI)
    assert result.exit_code == 0, log
    return log.splitlines()[-1], log


def kept(bucket: CheckpointServer) -> Mapping[str, bytes]:
    """Objects of the one environment that is kept, by name."""
    blobs = {blob.name.rpartition("/")[2]: blob for blob in bucket.all_objects("airflow-tpu-wheels/")}
    return {name: blob.download_as_bytes() for name, blob in blobs.items()}


@pytest.fixture
def first(machine: Machine, index: Index, bucket: CheckpointServer) -> str:
    """Log of a run that has installed from the index and left its wheels."""
    image(machine)
    return run(machine, index, bucket)[1]


@pytest.mark.slow
def test_the_next_machine_needs_no_index(
    first: str, machine: Machine, next_machine: Machine, index: Index, bucket: CheckpointServer
) -> None:
    """What was resolved is written down, its wheels are in the bucket, and from there they are installed."""
    assert "1 wheel(s) are kept in the bucket for the next TPU" in first
    assert set(kept(bucket)) == {MANIFEST, WHEEL}
    index.stop()
    said, log = run(next_machine, index, bucket)
    assert (said, "installed 1 package(s) from the wheels" in log) == ("a toy", True)
    for one in (machine, next_machine):
        lines = (one.attempt(RunRef("run", 1)) / protocol.ENVIRONMENT_FILE).read_text().splitlines()
        assert lines[0].startswith("# cpython-3.")
        assert "toy==1.0" in lines


@pytest.mark.slow
def test_a_poisoned_wheel_is_not_used(
    first: str, next_machine: Machine, index: Index, bucket: CheckpointServer
) -> None:
    """The index is asked instead, and the wheels are kept anew as they should be."""
    good = kept(bucket)
    (blob,) = (blob for blob in bucket.all_objects("airflow-tpu-wheels/") if blob.name.endswith(WHEEL))
    blob.upload_from_string(good[WHEEL].replace(b"a toy", b"a t0y"))
    asked = len(index.requests)
    said, log = run(next_machine, index, bucket)
    assert (said, len(index.requests) > asked) == ("a toy", True)
    assert "the kept wheels are not used" in log
    assert kept(bucket) == good


@pytest.fixture
def cache(bucket: CheckpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelCache:
    """An environment of one wheel that is kept."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket.url)
    cache = WheelCache(URI, "key")
    assert cache.store([toy_wheel(tmp_path / "wheels")])
    return cache


def test_wheels_come_as_they_were_kept(cache: WheelCache, tmp_path: Path) -> None:
    """Whatever lay in the folder before is gone; another environment has none."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "old-1.0-py3-none-any.whl").touch()
    (wheel,) = cache.fetch(tmp_path / "here") or []
    assert wheel.read_bytes() == (tmp_path / "wheels" / WHEEL).read_bytes()
    assert list((tmp_path / "here").iterdir()) == [wheel]
    assert WheelCache(URI, "other").fetch(tmp_path / "here") is None


DAMAGES: dict[str, tuple[str, bytes | None]] = {
    "poisoned": (WHEEL, b"another"),
    "half": (WHEEL, None),
    "no manifest": (MANIFEST, None),
    "empty": (MANIFEST, b""),
    "no JSON object": (MANIFEST, b"[1]"),
    "another version": (MANIFEST, b'{"version": 9, "files": []}'),
    "nothing in it": (MANIFEST, b'{"version": 1, "files": []}'),
    "a way out": (MANIFEST, b'{"version": 1, "files": [{"name": "../x.whl", "sha256": "0"}]}'),
    "no digest": (MANIFEST, b'{"version": 1, "files": [{"name": "x.whl"}]}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_wheels_are_none(
    cache: WheelCache, bucket: CheckpointServer, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line says why, and they can be kept anew."""
    name, content = DAMAGES[damage]
    (blob,) = (blob for blob in bucket.all_objects("airflow-tpu-wheels/") if blob.name.endswith(f"/{name}"))
    if content is None:
        blob.delete()
    else:
        blob.upload_from_string(content)
    assert cache.fetch(tmp_path / "here") is None
    assert ("the kept wheels are not used" in capsys.readouterr().out) == (damage != "no manifest")
    assert cache.store([tmp_path / "wheels" / WHEEL])
    assert cache.fetch(tmp_path / "here") == [tmp_path / "here" / WHEEL]


@pytest.mark.slow
def test_a_bucket_that_refuses_stops_no_run(machine: Machine, index: Index, bucket: CheckpointServer) -> None:
    """Neither the wheels that cannot be listed nor those that cannot be kept."""
    image(machine)
    bucket.fault("403", times=2, object="")
    said, log = run(machine, index, bucket)
    assert (said, "the kept wheels are not used" in log) == ("a toy", True)
    assert "the wheels are not kept for the next TPU" in log
