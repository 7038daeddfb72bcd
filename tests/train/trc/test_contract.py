# SPDX-License-Identifier: Apache-2.0
"""The contract library without any framework: environment, requests to stop, reports."""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_tpu import protocol
from tests.train.script_run import SCRIPTS
from trc import contract as library
from trc.contract import EXIT_BAD_CONFIG, Contract, ContractExit, StopRequest


def contract(**variables: str) -> Contract:
    return Contract.from_environment({"TRC_" + name: value for name, value in variables.items()})


def test_every_value_has_a_default_outside_the_pipeline() -> None:
    """Without any variable the output goes to ./output, the checkpoints below it, and nothing asks to stop."""
    by_hand = contract()
    assert by_hand.output_dir == Path("output")
    assert by_hand.checkpoint_dir == Path("output/checkpoints")
    assert (by_hand.accel, by_hand.attempt, by_hand.worker_id, by_hand.worker_count) == ("auto", 1, 0, 1)
    assert (by_hand.resume, by_hand.seed, by_hand.stop_file, by_hand.deadline) == (None, None, None, None)
    assert StopRequest(by_hand).reason == ""


def test_every_variable_is_read() -> None:
    """Each variable of the contract arrives with its type; an empty one counts as absent."""
    found = contract(
        RUN_ID="nightly-3f",
        ATTEMPT="4",
        WORKER_ID="1",
        WORKER_COUNT="4",
        ACCEL="TPU",
        OUTPUT_DIR="/out",
        CHECKPOINT_DIR="/ckpt",
        RESUME="/ckpt/step-0000000100",
        DATA_URI="file:///data.npz",
        ARTIFACTS_URI="gs://bucket/prefix",
        BASELINE_URI="gs://bucket/champion",
        SEED="7",
        STOP_FILE="/run/stop",
        STOP_GRACE_SECS="12.5",
        DEADLINE="",
    )
    assert found == Contract(
        run_id="nightly-3f",
        attempt=4,
        worker_id=1,
        worker_count=4,
        accel="tpu",
        output_dir=Path("/out"),
        checkpoint_dir=Path("/ckpt"),
        resume=Path("/ckpt/step-0000000100"),
        data_uri="file:///data.npz",
        artifacts_uri="gs://bucket/prefix",
        baseline_uri="gs://bucket/champion",
        seed=7,
        stop_file=Path("/run/stop"),
        stop_grace_secs=12.5,
        deadline=None,
    )


def test_all_wrong_variables_are_named_at_once() -> None:
    """Three faults give one error with status 64 that names each variable, its value and what is allowed."""
    with pytest.raises(ContractExit) as refused:
        contract(ATTEMPT="first", ACCEL="gpus", DEADLINE="tomorrow")
    assert refused.value.code == EXIT_BAD_CONFIG
    for part in ("TRC_ATTEMPT is 'first'", "TRC_ACCEL is 'gpus'", "tpu, gpu, cpu, auto", "TRC_DEADLINE is 'tomorrow'"):
        assert part in str(refused.value)


def test_the_stop_file_asks_to_stop_as_soon_as_it_exists(tmp_path: Path) -> None:
    """The reason is empty before and names the file after."""
    file = tmp_path / "stop"
    stop = StopRequest(contract(STOP_FILE=str(file)))
    assert stop.reason == ""
    file.touch()
    assert str(file) in stop.reason


@pytest.mark.parametrize(("now", "asks"), [(969.0, False), (970.0, True), (1200.0, True)])
def test_the_deadline_asks_to_stop_one_grace_period_before(now: float, asks: bool) -> None:
    """With 30 s of grace, a deadline at 1000 leaves time to save from 970 on."""
    stop = StopRequest(contract(DEADLINE="1000", STOP_GRACE_SECS="30"), now=lambda: now)
    assert bool(stop.reason) is asks


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """The handlers of this process as they were before the test."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop(number: signal.Signals) -> None:
    """A caught signal ends nothing by itself; its name is the reason."""
    stop = StopRequest(contract())
    stop.install()
    signal.raise_signal(number)
    assert stop.reason == number.name


@pytest.mark.usefixtures("restored_signals")
def test_a_second_interrupt_from_the_keyboard_ends_the_script_at_once() -> None:
    """A second Ctrl-C ends the script without waiting for the checkpoint."""
    StopRequest(contract()).install()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("restored_signals")
def test_losing_the_terminal_does_not_ask_to_stop() -> None:
    """A lost SSH connection leaves a SIGHUP: training continues."""
    stop = StopRequest(contract())
    stop.install()
    signal.raise_signal(signal.SIGHUP)
    assert stop.reason == ""


@pytest.mark.parametrize("name", ["trc/contract", "trc/report", "trc/crc32c", "trc/checkpoint", "hello"])
def test_the_library_parses_with_the_oldest_python_of_a_tpu_vm(name: str) -> None:
    """The framework-neutral files use no syntax newer than Python 3.8."""
    source = (SCRIPTS / f"{name}.py").read_text()
    assert ast.parse(source, feature_version=(3, 8)).body


def test_scripts_and_airflow_mean_the_same_by_an_exit_code() -> None:
    """The library cannot import the package on a TPU VM, so each has the numbers: no name may have two."""
    names = {name for name in vars(library) if name.startswith("EXIT_")}
    assert "EXIT_DIVERGED" in names
    assert {name: getattr(library, name) for name in names} == {name: getattr(protocol, name) for name in names}
