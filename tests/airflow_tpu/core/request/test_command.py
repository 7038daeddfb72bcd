# SPDX-License-Identifier: Apache-2.0
"""Commands as the READMEs of public repositories give them."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.command import SHELL, WHOLE_LINE, command
from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.run_conf import RunConf
from tests.airflow_tpu.core.request.test_run_conf import GOOD, faults_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py --lr 1e-3", ("python", "train.py", "--lr", "1e-3")),
        (
            "python3 -m pkg.train \\\n  --data_dir=$TRC_DATA_URI",
            ("python3", "-m", "pkg.train", "--data_dir=$TRC_DATA_URI"),
        ),
        ("bash train.sh a", (*SHELL, "train.sh", "a")),
        ("./train.sh", ("./train.sh",)),
        ("torchrun --nproc_per_node=8 train.py", ("torchrun", "--nproc_per_node=8", "train.py")),
        ("python t.py --pattern='a|b;c' --text \"x > y\"", ("python", "t.py", "--pattern=a|b;c", "--text", "x > y")),
        ("python t.py --glob=gs://b/train-*", ("python", "t.py", "--glob=gs://b/train-*")),
        ("python t.py --price '$HOME'", ("python", "t.py", "--price", "$HOME")),
        ("python t.py \\$x", ("python", "t.py", "$x")),
    ],
)
def test_a_simple_command_is_run_without_a_shell(text: str, words: tuple[str, ...]) -> None:
    """Program and arguments are as a shell would split them; quoted operators are no operators."""
    found = command(text)
    assert found is not None
    assert (found.words, found.needs_shell, dict(found.environment)) == (words, False, {})


@pytest.mark.parametrize(
    "text",
    [
        "python train.py |& tee log",
        "pip install -e . && python train.py",
        "pip install -e .\npython train.py",
        "python train.py > log 2>&1",
        "python train.py --name=$(date)",
        "python train.py --dir $HOME/data",
        "python train.py --dir ~/data",
        "cd src; python train.py",
        "(python train.py)",
    ],
)
def test_what_needs_a_shell_gets_one_that_fails_with_its_first_failure(text: str) -> None:
    """A pipe that loses its training, and a list whose first part fails, have failed."""
    found = command(text)
    assert found is not None
    assert (found.words, found.needs_shell) == ((*WHOLE_LINE, text), True)


def test_variables_in_front_are_its_environment() -> None:
    """They are checked like those of the form."""
    found = command("LR=1e-3 XLA_FLAGS='--a=1 --b' python train.py LAST=1")
    assert found is not None
    assert found.words == ("python", "train.py", "LAST=1")
    assert found.environment == {"LR": "1e-3", "XLA_FLAGS": "--a=1 --b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A=1 B=2", "starts nothing"),
        ("python 'a", "no closing quotation"),
        ("WANDB_API_KEY=0123456789abcdef python t.py", "looks like a secret"),
        ("python t.py --token ghp_0123456789abcdefghijABCDEFGHIJ012345", "looks like a secret"),
        ("TRC_SEED=1 python t.py", "set by this package"),
    ],
)
def test_what_cannot_be_run_is_refused(text: str, problem: str) -> None:
    """The message says why, and shows no secret."""
    with pytest.raises(Invalid, match=problem):
        command(text)


def test_nothing_typed_is_no_command() -> None:
    """An empty field means that the script field counts."""
    assert command(" \\\n ") is None


def test_a_command_stands_in_place_of_a_script(catalogue: Catalogue) -> None:
    """The script that the form proposes does not count then, and arguments belong into the command."""
    typed = {**GOOD, "arguments": "", "source": "big_vision/", "command": "python -m big_vision.train --lr $TRC_SEED"}
    conf = RunConf.parse(typed, catalogue)
    assert conf.command is not None
    assert (conf.script, conf.source, conf.command.words[:3]) == (
        "",
        "big_vision",
        ("python", "-m", "big_vision.train"),
    )
    assert RunConf.parse({name: typed[name] for name in typed if name != "script"}, catalogue) == conf
    assert list(faults_of(catalogue, command="python train.py", arguments="--lr 1")) == ["arguments"]
