# SPDX-License-Identifier: Apache-2.0
"""Manifests, and their comparison with the bucket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.run.manifest import Manifest, ManifestFile, verify
from airflow_tpu.errors import ArtifactError, UnknownVersion

MODEL = ManifestFile("model/saved_model.pb", 600, "AAAAAA==", "1B2M2Y8AsgTpgAmY7PhCfg==", 7)
ODD = ManifestFile("a b/100%/[1]*\n학습", 0, "AAAAAQ==")
MANIFEST = Manifest((MODEL, ODD))


@dataclass
class Object:
    """An object as a listing shows it."""

    size: int
    crc32c: str | None
    generation: int = 7


def listing(**changes: Object | None) -> dict[str, Object]:
    """The bucket with everything in it, the model changed or missing."""
    found = {file.path: Object(file.size, file.crc32c) for file in MANIFEST.files}
    if "model" in changes:
        found.pop(MODEL.path)
    if model := changes.get("model"):
        found[MODEL.path] = model
    return found


FILES = {"files": json_form.to_json(MANIFEST.files)}


@pytest.mark.parametrize("version", [{"version": 1}, {"schema_version": 1}, {}], ids=["runner", "checkpoint", "script"])
def test_a_manifest_is_read(version: dict[str, int]) -> None:
    """Odd names included; the runner's manifest, a checkpoint's, and a script's own, which may name no version."""
    found = Manifest.from_json(json.loads(json.dumps({**version, **FILES, "step": 10})))
    assert (found, found.size) == (MANIFEST, 600)


@pytest.mark.parametrize("version", [{"version": 2}, {"schema_version": 2}, {"version": True}, {"version": None}])
def test_manifest_of_another_release_is_left_alone(version: dict[str, Any]) -> None:
    """What another release has written may mean something else, so no file is taken for missing or complete."""
    with pytest.raises(UnknownVersion, match="this release reads version 1"):
        Manifest.from_json({**version, **FILES})


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
        {"files": [{"path": "a", "size": float("inf"), "crc32c": ""}]},
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
        (Object(600, None, 8), "model/saved_model.pb: generation is 8, expected 7"),
        (Object(600, "", 8), "model/saved_model.pb: generation is 8, expected 7"),
    ],
)
def test_what_is_not_safely_in_the_bucket(model: Object | None, problem: str) -> None:
    """A missing, short or altered object is named with what was expected."""
    assert [str(found) for found in verify(MANIFEST, listing(model=model))] == [problem]


def test_what_is_safely_in_the_bucket() -> None:
    """Further objects do not matter, nor a new generation of the same content, nor a checksum that is not told."""
    assert verify(MANIFEST, {**listing(), "log": Object(1, "x")}) == []
    assert verify(MANIFEST, listing(model=Object(600, MODEL.crc32c, 8))) == []
    unknown = {file.path: Object(file.size, None) for file in MANIFEST.files}
    assert verify(MANIFEST, unknown) == []
