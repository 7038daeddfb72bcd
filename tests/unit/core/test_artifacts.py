"""Manifests, the comparison with the bucket, and the point to resume from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_tpu.core.artifacts import Manifest, ManifestFile, newest_complete, verify
from airflow_tpu.errors import ArtifactError

MODEL = ManifestFile("model/saved_model.pb", 600, "AAAAAA==", "1B2M2Y8AsgTpgAmY7PhCfg==")
ODD = ManifestFile("a b/100%/[1]*\n학습", 0, "AAAAAQ==")
MANIFEST = Manifest((MODEL, ODD))


@dataclass
class Object:
    """An object as a listing shows it."""

    size: int
    crc32c: str


def listing(**changes: Object | None) -> dict[str, Object]:
    """The bucket with everything in it, the model changed or missing."""
    found = {file.path: Object(file.size, file.crc32c) for file in MANIFEST.files}
    if "model" in changes:
        found.pop(MODEL.path)
    if model := changes.get("model"):
        found[MODEL.path] = model
    return found


def test_a_manifest_is_read_back() -> None:
    """Odd names included, and the same manifest has the same bytes."""
    assert Manifest.from_json(json.loads(MANIFEST.to_bytes())) == MANIFEST
    assert MANIFEST.size == 600


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        None,
        {"files": None},
        {"files": [{}]},
        {"files": ["a"]},
        {"files": [{"path": "/etc/passwd", "size": 1, "crc32c": ""}]},
        {"files": [{"path": "a/../../b", "size": 1, "crc32c": ""}]},
        {"files": [{"path": "", "size": 1, "crc32c": ""}]},
        {"files": [{"path": "a", "size": "big", "crc32c": ""}]},
        {"files": [{"path": "a", "size": 1, "crc32c": ""}, {"path": "a", "size": 2, "crc32c": ""}]},
    ],
)
def test_damaged_manifests(data: Any) -> None:
    """What is no manifest, names a file twice or one outside its folder is refused."""
    with pytest.raises(ArtifactError):
        Manifest.from_json(data)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (None, "model/saved_model.pb is missing"),
        (Object(599, "AAAAAA=="), "model/saved_model.pb: size is 599, expected 600"),
        (Object(600, "AAAAAQ=="), "model/saved_model.pb: crc32c is AAAAAQ==, expected AAAAAA=="),
    ],
)
def test_what_is_not_safely_in_the_bucket(model: Object | None, problem: str) -> None:
    """A missing, short or altered object is named with what was expected."""
    assert [str(found) for found in verify(MANIFEST, listing(model=model))] == [problem]


def test_what_is_safely_in_the_bucket() -> None:
    """Further objects do not matter."""
    assert verify(MANIFEST, {**listing(), "log": Object(1, "x")}) == []


def checkpoint(step: object, *paths: str) -> dict[str, Any]:
    """A checkpoint's manifest as the training script writes it."""
    files = [{"path": path, "size": 3, "crc32c": "AAAAAA=="} for path in paths]
    return {"schema_version": 1, "step": step, "reason": "periodic", "files": files, "metrics": {}}


def test_the_newest_complete_checkpoint() -> None:
    """A newer one with a missing file is skipped and named; an older complete one is not looked at."""
    manifests = {
        "c/step-0300/MANIFEST.json": checkpoint(300, "data", "index"),
        "c/step-0200/MANIFEST.json": checkpoint(200, "data"),
        "c/step-0100/MANIFEST.json": checkpoint(100, "data"),
    }
    stored = {f"c/step-0{step}00/data": Object(3, "AAAAAA==") for step in (1, 2, 3)}
    newest, skipped = newest_complete(manifests, stored)
    assert newest is not None
    assert (newest.step, newest.folder) == (200, "c/step-0200")
    assert [(one.step, str(one.problems[0])) for one in skipped] == [(300, "index is missing")]


def test_steps_are_numbers() -> None:
    """Step 1000 is newer than step 999, whatever their folders are called."""
    manifests = {"c/z/MANIFEST.json": checkpoint(999), "c/a/MANIFEST.json": checkpoint(1000)}
    newest, _ = newest_complete(manifests, {})
    assert newest is not None
    assert newest.step == 1000


def test_a_torn_copy_of_the_same_step_is_named() -> None:
    """Two folders of one step, as two attempts leave them: the whole one is used and the torn one is said."""
    manifests = {"a/MANIFEST.json": checkpoint(5), "b/MANIFEST.json": checkpoint(5, "data")}
    newest, skipped = newest_complete(manifests, {})
    assert newest is not None
    assert (newest.folder, [one.folder for one in skipped]) == ("a", ["b"])


@pytest.mark.parametrize("step", [None, -1, True, "300", 1.5])
def test_a_checkpoint_without_a_step_is_named(step: object) -> None:
    """A damaged manifest does not stop the search, and does not vanish from the log."""
    manifests = {"c/a/MANIFEST.json": checkpoint(step), "c/b/MANIFEST.json": checkpoint(7)}
    newest, skipped = newest_complete(manifests, {})
    assert newest is not None
    assert newest.step == 7
    assert [one.folder for one in skipped] == ["c/a"]


def test_no_checkpoint_and_no_whole_checkpoint_differ() -> None:
    """Nothing there means start at zero; something there that is not whole is said."""
    assert newest_complete({}, {}) == (None, [])
    newest, skipped = newest_complete({"c/a/MANIFEST.json": checkpoint(5, "data")}, {})
    assert newest is None
    assert [one.step for one in skipped] == [5]
