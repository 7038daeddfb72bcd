"""The pins of the training side say what the reasons beside them say."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from tests.train.digits_process import SCRIPTS


def pins(name: str) -> list[str]:
    """The requirement lines of a file."""
    lines = (SCRIPTS / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-tpu.txt"])
def test_every_pin_is_exact_but_that_of_libtpu(name: str) -> None:
    """Two installations a year apart give the same versions; libtpu has a range because its releases depend on Python."""
    loose = [pin for pin in pins(name) if not re.fullmatch(r"[\w-]+==[\w.]+(; python_version [<>]=? \"3\.\d+\")?", pin)]
    assert loose == (["libtpu>=0.0.14,<0.0.44"] if name == "requirements-tpu.txt" else [])


def test_the_tests_run_with_the_versions_that_are_shipped() -> None:
    """What is installed here is what requirements.txt pins: a green test speaks for the shipped set."""
    pinned = dict(pin.split("==") for pin in pins("requirements.txt"))
    assert {name: version(name) for name in pinned} == pinned


def test_the_tpu_set_never_names_the_wheel_that_overwrites_it() -> None:
    """Both wheels own the directory tensorflow/: the TPU set has tensorflow-tpu and neither of the others."""
    names = {re.split(r"[=<>]", pin)[0] for pin in pins("requirements-tpu.txt")}
    assert "tensorflow-tpu" in names
    assert names.isdisjoint({"tensorflow", "tensorflow-cpu"})
