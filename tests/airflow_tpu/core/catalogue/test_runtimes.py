# SPDX-License-Identifier: Apache-2.0
"""What is known of a runtime version beside its name."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.runtimes import python_of


@pytest.mark.parametrize(
    ("runtime", "python"),
    [
        ("tpu-vm-tf-2.13.1-pod", (3, 8)),
        ("tpu-vm-tf-2.14.1", (3, 10)),
        ("tpu-vm-tf-2.18.0-pjrt-v5e-and-v6", (3, 10)),
        ("tpu-ubuntu2204-base", (3, 10)),
        ("v2-alpha-tpuv6e", (3, 10)),
        ("tpu-ubuntu2404-base", None),
        ("", None),
    ],
)
def test_python_of_a_runtime_version(runtime: str, python: tuple[int, int] | None) -> None:
    """The image decides; of one that is not known, nothing is claimed."""
    assert python_of(runtime) == python
