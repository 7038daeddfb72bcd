"""Manifests, and their comparison with the bucket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_tpu.core.run.manifest import Manifest, ManifestFile, verify
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
