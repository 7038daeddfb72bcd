# SPDX-License-Identifier: Apache-2.0
"""A module in place of a script."""

from __future__ import annotations

import pytest

from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.paths import module_name, script


@pytest.mark.parametrize(("script", "name"), [("-m pkg.train", "pkg.train"), ("m.py", ""), ("-m a;b", ""), ("-m", "")])
def test_a_module_is_told_from_a_path(script: str, name: str) -> None:
    """Only ``-m`` and a dotted name is a module."""
    assert module_name(script) == name


def test_a_module_is_a_script() -> None:
    """What people type after ``python`` is taken, and what only looks like it is refused."""
    assert script("-m pkg.train") == "-m pkg.train"
    with pytest.raises(Invalid, match=r"give -m package\.module"):
        script("-m pkg/train.py")
