# SPDX-License-Identifier: Apache-2.0
"""Commands as the READMEs of public repositories give them."""

from __future__ import annotations

import subprocess

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.command import SHELL, WHOLE_LINE, command
from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.core.request.test_run_conf import GOOD, faults_of

KEY = "0123456789abcdef" * 2 + "01234567"


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
        "python train.py # as in the paper",
    ],
)
def test_what_needs_a_shell_gets_one_that_fails_with_its_first_failure(text: str) -> None:
    """A pipe that loses its training, and a list whose first part fails, have failed."""
    found = command(text)
    assert found is not None
    assert (found.words, found.needs_shell) == ((*WHOLE_LINE, text), True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$ python train.py", ("python", "train.py")),
        ("!python train.py --lr 1", ("python", "train.py", "--lr", "1")),
        ("$ cd src\n$ python train.py", (*WHOLE_LINE, "cd src\npython train.py")),
        ("$HOME/train", (*WHOLE_LINE, "$HOME/train")),
        ("python t.py --tag '#1' a#b", ("python", "t.py", "--tag", "#1", "a#b")),
    ],
)
def test_a_prompt_is_no_part_of_a_command(text: str, words: tuple[str, ...]) -> None:
    """READMEs show those of a terminal and of a notebook."""
    found = command(text)
    assert found is not None
    assert found.words == words


@pytest.mark.parametrize("text", ["nohup python train.py > log 2>&1 &", "python train.py&", "a && b &  "])
def test_a_command_in_the_background_is_waited_for(text: str) -> None:
    """The run would end with the shell otherwise, at once, and well."""
    found = command(text)
    assert found is not None
    assert found.words == (*WHOLE_LINE, f"{text.strip()}\nwait $!")
    assert found.text == text.strip()


def test_the_status_of_the_background_is_that_of_the_command() -> None:
    """Also when the training fails."""
    found = command("(exit 3) &")
    assert found is not None
    assert subprocess.run(found.words, check=False).returncode == 3


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
        (f"export WANDB_API_KEY={KEY}\npython t.py", "WANDB_API_KEY looks like a secret"),
        (f"export WANDB_API_KEY='{KEY}' && python t.py", "looks like a secret"),
        (f"env WANDB_API_KEY={KEY} python t.py", "looks like a secret"),
        (f"python t.py --wandb.api-key {KEY}", "wandb.api-key looks like a secret"),
        (f'python t.py --conf \'{{"api_key": "{KEY}"}}\'', "looks like a secret"),
        (f"wandb login {KEY} && python t.py", "looks like a secret"),
        ("python t.py --password=hunter2", "looks like a secret"),
        (f"python t.py --hub_token {KEY}", "looks like a secret"),
    ],
)
def test_what_cannot_be_run_is_refused(text: str, problem: str) -> None:
    """The message says why, and shows no secret."""
    with pytest.raises(Invalid, match=problem):
        command(text)


@pytest.mark.parametrize(
    "text",
    [
        "export WANDB_API_KEY='...'; python t.py",
        "export WANDB_API_KEY=$KEY; python t.py",
        'python t.py --api_key=$WANDB_API_KEY --token "$HF_TOKEN"',
        "python t.py --wandb_api_key <your key> > log",
        "python t.py --pad_token '[PAD]' --eos_token '<|endoftext|>' --bos_token=<s>",
        "python t.py --unk_token=reserved_special_token_250 --max_token 4096",
        "python t.py --private_key /keys/id_rsa --api_key key.txt",
        "python t.py --use_api_key true",
        "python -c \"api_key=os.environ['K']\"",
        "python t.py --tokenizer gpt2 --api_key --lr 1",
    ],
)
def test_what_only_names_a_secret_is_taken(text: str) -> None:
    """Variables, placeholders, files and the tokens of a language model."""
    assert command(text) is not None


def test_a_wrong_command_is_the_only_fault(catalogue: Catalogue) -> None:
    """No script is missed beside it."""
    form = {name: value for name, value in GOOD.items() if name not in ("script", "arguments")}
    with pytest.raises(ConfigError) as caught:
        RunConf.parse({**form, "command": "python 'a"}, catalogue)
    assert [fault.field for fault in caught.value.faults] == ["command"]


def test_a_bucket_that_a_variable_names_is_known(catalogue: Catalogue) -> None:
    """Its value stands in the form, in the command, or nowhere, which is a fault."""
    form = {
        **GOOD,
        "arguments": "",
        "command": "python t.py --workdir gs://$BUCKET/w --data_dir=gs://${BUCKET}/d |& tee x",
    }
    conf = RunConf.parse({**form, "environment": "BUCKET=mine"}, catalogue)
    assert [one.uri for one in conf.named_uris if one.field == "command"] == ["gs://mine/w", "gs://mine/d"]
    for setting in ("BUCKET=b; ", "export BUCKET=b\n", "read BUCKET < name; "):
        assert RunConf.parse({**form, "command": f"{setting}{form['command']}"}, catalogue).command is not None
    with pytest.raises(ConfigError, match=r"names a bucket by \$BUCKET, which nothing sets"):
        RunConf.parse(form, catalogue)


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
