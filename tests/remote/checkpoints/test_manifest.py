# SPDX-License-Identifier: Apache-2.0
"""Manifests are untrusted text: one that leads elsewhere, is damaged or of another version is refused."""

from __future__ import annotations

import pytest

from airflow_tpu import protocol
from checkpoints.manifest import MANIFEST, UnknownManifestVersion, parse


@pytest.mark.parametrize(
    "document",
    [
        '{"files": [{"path": "/etc/passwd", "size": 1}]}',
        '{"files": [{"path": "a/../../b", "size": 1}]}',
        '{"files": [], "links": {"a": "../b"}}',
        '{"files": [], "links": {"a": "/b"}}',
        '{"files": [], "links": {"deep/down/in/b": "../../../c", "e": "deep/down/in/b/../../../../x"}}',
        '{"files": [], "links": []}',
        '{"files": [{"path": "a", "size": Infinity}]}',
        '{"files": 3}',
        "[]",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
)
def test_a_manifest_cannot_lead_out_of_its_directory(document: str) -> None:
    """A manifest that names a place outside, or is damaged, is refused before anything is written."""
    with pytest.raises(ValueError, match=r"manifest|Expecting|utf-8"):
        parse(document.encode("latin-1"))


@pytest.mark.parametrize("version", ["2", "0", "null", "true", '"1"'])
def test_a_manifest_of_another_version_is_told_from_a_damaged_one(version: str) -> None:
    """A version that this runner does not know is an error of its own, whatever else stands in the manifest."""
    with pytest.raises(UnknownManifestVersion, match=r"this runner reads version 1$"):
        parse(b'{"schema_version": %s, "chunks": []}' % version.encode())


def test_a_script_need_not_name_a_version() -> None:
    """A manifest as short as the script contract shows it counts as of the first version."""
    assert parse(b'{"step": 200, "files": []}').step == 200


def test_all_sides_mean_the_same_file() -> None:
    """The runner's name of a manifest is the one by which Airflow's side counts complete checkpoints."""
    assert MANIFEST == protocol.CHECKPOINT_MANIFEST
