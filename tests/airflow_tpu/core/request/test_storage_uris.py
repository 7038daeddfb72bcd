# SPDX-License-Identifier: Apache-2.0
"""The ``gs://`` URIs that a run is handed in its words."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.request.storage_uris import outermost, uris_in


@pytest.mark.parametrize(
    ("text", "uris"),
    [
        ("gs://eu-data/imagenet", ["gs://eu-data/imagenet"]),
        ("--data=gs://eu-data/imagenet/", ["gs://eu-data/imagenet"]),
        ("--all gs://a-b/x,gs://c.d/y", ["gs://a-b/x", "gs://c.d/y"]),
        ("gs://a-b/x:gs://c_d/y", ["gs://a-b/x", "gs://c_d/y"]),
        ('{"train": "gs://a-b/x", "val": ["gs://c-d"]}', ["gs://a-b/x", "gs://c-d"]),
        ("gs://a-b/train-*.tfrecord gs://a-b/*/x gs://a-b/v[0-9]/y", ["gs://a-b", "gs://a-b", "gs://a-b"]),
        ("gs://a-b/x/train-{0..9}", ["gs://a-b/x"]),
        ("gs://a-b/2026/{{ ds }}/x", ["gs://a-b/2026"]),
        ("gs://a-b/데이터/1", ["gs://a-b/데이터/1"]),
        ("see gs://a-b/x.", ["gs://a-b/x"]),
        ("no gs:// here, nor s3://bucket/x", []),
    ],
)
def test_uris_are_found_wherever_they_stand(text: str, uris: list[str]) -> None:
    """Alone, behind an equals sign, in lists and in JSON; of a pattern or a template the folder above it."""
    assert list(uris_in(text)) == uris


def test_what_lies_below_another_is_measured_once() -> None:
    """A folder stands for everything below it; a name that only begins alike is another one."""
    found = outermost(["gs://a-b/x/1", "gs://a-b/x", "gs://a-b/x-rays", "gs://a-b/x"])
    assert found == ["gs://a-b/x", "gs://a-b/x-rays"]
    assert outermost(["gs://a-b/x", "gs://a-b", "gs://a-bc/x"]) == ["gs://a-b", "gs://a-bc/x"]


def test_every_uri_of_a_form_is_known(catalogue: Catalogue) -> None:
    """Script, data, arguments and environment count alike; the artifacts are written, so they stand apart."""
    form: dict[str, Any] = {
        "script": "gs://one/train.py",
        "data_uri": "gs://two/images",
        "arguments": "--val gs://three/val --log=gs://runs/r/log",
        "environment": "A=gs://four/a\nB=gs://two/images/b",
        "artifacts_uri": "gs://runs/r",
        "accelerator_type": "v2-8",
        "zone": "us-central1-f",
    }
    found = RunConf.parse(form, catalogue).inputs
    assert found == ("gs://one/train.py", "gs://two/images", "gs://three/val", "gs://runs/r/log", "gs://four/a")
