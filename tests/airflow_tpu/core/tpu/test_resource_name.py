# SPDX-License-Identifier: Apache-2.0
"""Full names of nodes and queued resources."""

from __future__ import annotations

import pytest

from airflow_tpu.core.tpu.resource_name import ResourceKind, ResourceName, location, node_name, zone_of

NODE = "projects/my-project/locations/us-central1-f/nodes/train-1"
QUEUED = "projects/my-project/locations/us-central1-f/queuedResources/train-1"


@pytest.mark.parametrize("text", [NODE, QUEUED])
def test_what_is_parsed_is_printed(text: str) -> None:
    """A name survives the way through text."""
    assert str(ResourceName.parse(text)) == text


def test_parts_have_names() -> None:
    """Project, zone, kind and id are read once."""
    assert ResourceName.parse(NODE) == ResourceName("my-project", "us-central1-f", ResourceKind.NODE, "train-1")
    assert ResourceName.parse(NODE) == node_name("my-project", "us-central1-f", "train-1")
    assert ResourceName.parse(NODE).parent == "projects/my-project/locations/us-central1-f"


def test_a_node_and_its_request_name_each_other() -> None:
    """Both have the same id, so that one leads to the other."""
    assert ResourceName.parse(NODE).queued == ResourceName.parse(QUEUED)
    assert ResourceName.parse(QUEUED).node == ResourceName.parse(NODE)


@pytest.mark.parametrize(
    "text", ["", "train-1", f"{NODE}/x", "projects/p/locations/z/operations/o", f"//tpu.googleapis.com/{NODE}"]
)
def test_other_text_is_refused(text: str) -> None:
    """What is no name is not cut into pieces."""
    with pytest.raises(ValueError, match="is no full name"):
        ResourceName.parse(text)


def test_a_zone_is_read_by_either_name() -> None:
    """Lists name an unreachable zone in one of two ways."""
    assert zone_of(location("my-project", "us-central1-f")) == zone_of("us-central1-f") == "us-central1-f"
