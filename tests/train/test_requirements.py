# SPDX-License-Identifier: Apache-2.0
"""The pins of the training side say what the reasons beside them say."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

from tests.train.script_run import SCRIPTS


def pins(name: str) -> list[Requirement]:
    """The requirements of a file."""
    lines = (SCRIPTS / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-tpu.txt"])
def test_every_pin_is_exact_but_that_of_libtpu(name: str) -> None:
    """Two installations a year apart give the same versions; only libtpu, which differs with Python, has a range."""
    loose = {str(pin) for pin in pins(name) if [part.operator for part in pin.specifier] != ["=="]}
    assert loose == ({"libtpu<0.0.44,>=0.0.14"} if name == "requirements-tpu.txt" else set())


def test_the_tests_run_with_the_versions_that_are_shipped() -> None:
    """What is installed here is what requirements.txt pins: a green test speaks for the shipped set."""
    meant = [pin for pin in pins("requirements.txt") if pin.marker is None or pin.marker.evaluate()]
    assert {pin.name for pin in meant} >= {"tensorflow", "tensorboard", "keras", "numpy", "scikit-learn"}
    assert [f"{pin.name}=={version(pin.name)}" for pin in meant] == [f"{pin.name}{pin.specifier}" for pin in meant]


def test_the_tpu_set_never_names_the_wheel_that_overwrites_it() -> None:
    """Both wheels own the directory tensorflow/: the TPU set has tensorflow-tpu and neither of the others."""
    names = {pin.name for pin in pins("requirements-tpu.txt")}
    assert "tensorflow-tpu" in names
    assert names.isdisjoint({"tensorflow", "tensorflow-cpu"})
