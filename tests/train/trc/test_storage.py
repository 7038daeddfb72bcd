# SPDX-License-Identifier: Apache-2.0
"""Scripts read data sets and models from a bucket, through Google's own client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from google.cloud.storage import Bucket

from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, storage_bucket
from tests.train.digits_run import DigitsRun

from digits_parts import data  # isort: skip
from trc.contract import EXIT_BAD_DATA, ContractExit  # isort: skip
from trc.storage import fetch  # isort: skip

BUCKET = "trc-local"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundCloud]:
    """A local cloud whose Cloud Storage the process finds by its environment."""
    with BackgroundCloud(LocalCloudConfig(tmp_path / "cloud", tier="inprocess", buckets={BUCKET: "US"})) as running:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.endpoints.storage_api_endpoint)
        yield running


@pytest.fixture
def bucket(cloud: BackgroundCloud) -> Bucket:
    """The bucket of the grant."""
    return storage_bucket(cloud.endpoints.storage_api_endpoint, BUCKET)


def put(bucket: Bucket, prefix: str, directory: Path) -> str:
    """Upload a directory; returns its URI."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            bucket.blob(f"{prefix}/{path.relative_to(directory).as_posix()}").upload_from_filename(path)
    return f"gs://{BUCKET}/{prefix}"


def data_set(path: Path) -> None:
    """Write the packaged data set as an ``.npz`` file."""
    images, labels = data.read_csv(data.packaged_csv())
    np.savez_compressed(path, images=images, labels=labels)


def test_objects_below_a_prefix_keep_their_names(bucket: Bucket, tmp_path: Path) -> None:
    """A prefix is a folder: what only begins alike is not fetched, and a single object is a file of its name."""
    for name in ("data/a.txt", "data/deep/b.txt", "data2/c.txt"):
        bucket.blob(name).upload_from_string(name)
    target = tmp_path / "target"
    assert fetch(f"gs://{BUCKET}/data", target) == [target / "a.txt", target / "deep" / "b.txt"]
    assert fetch(f"gs://{BUCKET}/data2/c.txt", target) == [target / "c.txt"]
    assert (target / "deep" / "b.txt").read_text() == "data/deep/b.txt"


@pytest.mark.parametrize("name", ["data/../../escaped.txt", "data//etc/passwd"])
def test_no_object_leaves_the_directory(bucket: Bucket, tmp_path: Path, name: str) -> None:
    """A hostile object name ends the script with 65 before anything is written."""
    bucket.blob(name).upload_from_string("x")
    with pytest.raises(ContractExit, match="outside its directory") as refused:
        fetch(f"gs://{BUCKET}/data", tmp_path / "target")
    assert refused.value.code == EXIT_BAD_DATA
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("uri", [f"gs://{BUCKET}/nothing", "gs://no-such-bucket/data"])
def test_nothing_to_read_is_bad_data(cloud: BackgroundCloud, tmp_path: Path, uri: str) -> None:
    """An empty prefix and a bucket that does not exist end with 65 and are named."""
    with pytest.raises(ContractExit, match=uri) as refused:
        fetch(uri, tmp_path)
    assert refused.value.code == EXIT_BAD_DATA


def test_data_set_in_a_bucket_is_the_same_data_set(bucket: Bucket, tmp_path: Path) -> None:
    """Read by its URI or from the folder that holds it, it has the digest of the packaged one."""
    (tmp_path / "data").mkdir()
    data_set(tmp_path / "data" / "digits.npz")
    uri = put(bucket, "data", tmp_path / "data")
    packaged = data.load("").digest
    assert [data.load(f"{uri}/digits.npz").digest, data.load(uri).digest] == [packaged] * 2


@pytest.mark.slow
def test_champion_and_candidate_are_measured_on_the_same_examples(
    bucket: Bucket, run: DigitsRun, undisturbed: DigitsRun, tmp_path: Path
) -> None:
    """A run that gets a champion to compete with reports what it reaches on the run's own test images."""
    (tmp_path / "data").mkdir()
    data_set(tmp_path / "data" / "digits.npz")
    environment = {
        "STORAGE_EMULATOR_HOST": os.environ["STORAGE_EMULATOR_HOST"],
        "TRC_DATA_URI": put(bucket, "data", tmp_path / "data"),
        "TRC_BASELINE_URI": f"gs://{BUCKET}/runs/champion/attempt-1",
    }
    champion = undisturbed.done()
    put(bucket, "runs/champion/attempt-1/output/saved_model", champion.output / "saved_model")
    run.arguments += ["--steps", "40", "--eval-every", "20"]
    assert run.attempt(environment) == 0, run.log
    baseline = json.loads((run.output / "result.json").read_text())["baseline"]
    assert baseline["uri"] == environment["TRC_BASELINE_URI"]
    expected = champion.result["metrics"]["test_accuracy"]["value"]
    assert baseline["metrics"]["test_accuracy"]["value"] == pytest.approx(expected, abs=1e-6)
    assert run.result["metrics"]["test_accuracy"]["value"] < expected


@pytest.mark.slow
def test_champion_that_cannot_be_loaded_costs_the_run_nothing(cloud: BackgroundCloud, run: DigitsRun) -> None:
    """The result says why the comparison is missing; the run itself is done."""
    uri = f"gs://{BUCKET}/runs/gone/attempt-1"
    run.arguments += ["--steps", "20", "--eval-every", "20"]
    host = os.environ["STORAGE_EMULATOR_HOST"]
    assert run.attempt({"STORAGE_EMULATOR_HOST": host, "TRC_BASELINE_URI": uri}) == 0, run.log
    assert run.result["baseline"]["uri"] == uri
    assert "names no object" in run.result["baseline"]["error"]
