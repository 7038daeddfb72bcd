# SPDX-License-Identifier: Apache-2.0
"""Declared outputs as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.outputs import outputs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ()),
        ("model.h5, runs/**", ("model.h5", "runs/**")),
        ("model.h5\n\n  runs/**\nmodel.h5", ("model.h5", "runs/**")),
        ('["model.h5", "a, b/**"]', ("model.h5", "a, b/**")),
        (["model.h5"], ("model.h5",)),
        ("$TRC_OUTPUT_DIR/m.h5, ${TRC_OUTPUT_DIR}/n, ./o", ("m.h5", "n", "o")),
        ("gs://bucket/exports/*", ("gs://bucket/exports/*",)),
    ],
)
def test_outputs_are_read(given: Any, expected: tuple[str, ...]) -> None:
    """Lines, commas, a JSON list and a list; the output directory need not be named."""
    assert outputs(given) == expected


@pytest.mark.parametrize(
    "given",
    ["/etc/passwd", "~/x", "a/../../b", "$HOME/x", "gs://bucket", "gs://bucket/", "gs://UPPER/x", "[1]", "[", "./"],
)
def test_what_is_no_output_is_refused(given: str) -> None:
    """A path outside both folders, a bucket without a folder, and a list of something else."""
    with pytest.raises(Invalid):
        outputs(given)


def test_too_many_patterns_are_refused() -> None:
    """A list of every single file belongs into a pattern."""
    with pytest.raises(Invalid, match="more than 50 patterns"):
        outputs("\n".join(map(str, range(51))))
