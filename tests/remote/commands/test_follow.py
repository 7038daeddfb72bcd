# SPDX-License-Identifier: Apache-2.0
"""Following: every byte once, heartbeats in between, and a truthful last word."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.vm import RUN, Machine, named, until

Message = dict[str, Any]


class Follower:
    """A follow command and the two ends of its conversation.

    :param machine: where it runs.
    :param offset: as its ``--from``.
    """

    def __init__(self, machine: Machine, offset: int | str = 0, run: RunRef = RUN) -> None:
        command = machine.command("follow", *named(run), "--from", str(offset))
        self.process = subprocess.Popen(
            command, env=machine.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout
        return self.process.stdout

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def messages(self) -> Iterator[tuple[Message, bytes]]:
        """Messages with what follows them, until the command ends."""
        while line := self._out.readline():
            message = protocol.decode(line)
            data = self._out.read(message.get("length", 0))
            if len(data) == message.get("length", 0):
                yield message, data

    def acknowledge(self, offset: int) -> None:
        """Say that everything up to an offset has arrived."""
        assert self.process.stdin
        self.process.stdin.write(protocol.encode(protocol.ACK, offset=offset))
        self.process.stdin.flush()

    def leave(self) -> None:
        """End the conversation as a client does, and wait for the command."""
        self.process.communicate()

    def until(self, kind: str) -> Message:
        """The next message of a kind."""
        return next(message for message, _ in self.messages() if message["type"] == kind)


def everything(machine: Machine, offset: int | str = 0) -> tuple[bytes, Message]:
    """The log from an offset on, and the last message."""
    log = b""
    last: Message = {}
    with Follower(machine, offset) as follower:
        for last, data in follower.messages():
            log += data
            if last["type"] in (protocol.FINISHED, protocol.GONE):
                follower.leave()
                break
    return log, last


@pytest.mark.slow
def test_fifty_megabytes_without_a_line_end_survive_any_number_of_cuts(machine: Machine, tmp_path: Path) -> None:
    """Binary data with carriage returns and no newline arrive byte for byte through seven killed followers."""
    expected = random.Random(1).randbytes(50_000_000).replace(b"\n", b"\r")
    (tmp_path / "data").write_bytes(expected)
    machine.start("cat", str(tmp_path / "data"))
    received = bytearray()
    cuts = sorted(random.Random(2).sample(range(1, len(expected)), 7))
    for cut in [*cuts, len(expected) + 1]:
        with Follower(machine, len(received)) as follower:
            for message, data in follower.messages():
                assert message.get("offset", len(received)) == len(received)
                received += data
                if message["type"] == protocol.FINISHED or len(received) >= cut:
                    break
    assert received == expected
    assert everything(machine, 40_000_000)[0] == expected[40_000_000:]


def test_the_end_of_the_log_always_comes_before_the_end(machine: Machine) -> None:
    """A megabyte and a last line without a newline, written just before the exit, precede the result."""
    script = "import sys; sys.stdout.write('x' * 1_000_000 + '\\nTraceback: \\u00e9'); sys.exit(1)"
    machine.run(sys.executable, "-c", script)
    log, last = everything(machine)
    assert log == b"x" * 1_000_000 + "\nTraceback: é".encode()
    assert (last["type"], last["result"]["exit_code"]) == (protocol.FINISHED, 1)
    assert last["result"]["log_size"] == len(log)


def test_frames_are_bounded(machine: Machine) -> None:
    """A long log comes in pieces of at most 256 KiB, each at the offset where the last one ended."""
    machine.run("head", "-c", "1000000", "/dev/zero")  # before anybody follows: the pieces are as large as may be
    with Follower(machine) as follower:
        messages = follower.messages()
        sizes = [len(data) for _, data in itertools.takewhile(lambda one: one[0]["type"] == protocol.LOG, messages)]
    assert sizes == [262144, 262144, 262144, 213568]


def test_a_heartbeat_carries_size_and_progress(machine: Machine) -> None:
    """While the run is silent, heartbeats tell the size of its log and what it wrote to progress.json."""
    script = """echo '{"step": 3, "loss": NaN}' > $TRC_OUTPUT_DIR/progress.json; echo hello; sleep 1000"""
    machine.start("sh", "-c", script)
    until(lambda: machine.log() == b"hello\n")
    with Follower(machine) as follower:
        heartbeat = follower.until(protocol.HEARTBEAT)
    assert heartbeat["size"] == 6
    assert heartbeat["progress"] == {"step": 3, "loss": "NaN"}


@pytest.mark.parametrize(
    ("content", "progress"),
    [
        ('{"step": 1e999, "loss": -1e999}', {"step": "1e999", "loss": "-1e999"}),
        ('{"step": Infinity}', {"step": "Infinity"}),
        ('{"step": %s}' % ("9" * 5000), {"step": "9" * 5000}),
        ('{"step": 7, "at": 1700000000.5}', {"step": 7, "at": 1700000000.5}),
        (f'{{"step": 3, "more": {"[" * 400}1{"]" * 400}}}', None),
    ],
    ids=["1e999", "infinity", "5000 digits", "plain", "deep"],
)
def test_following_survives_every_progress_file(machine: Machine, content: str, progress: object) -> None:
    """Numbers that JSON does not know, or nobody can hold, arrive as text, and the run ends as it would without."""
    machine.start("sh", "-c", "while [ ! -e $TRC_OUTPUT_DIR/go ]; do sleep 0.05; done")
    output = machine.attempt() / "output"
    (output / "new").write_text(content)
    (output / "new").replace(output / "progress.json")
    with Follower(machine) as follower:
        assert follower.until(protocol.HEARTBEAT)["progress"] == progress
        (output / "go").touch()
        assert follower.until(protocol.FINISHED)["result"]["exit_code"] == 0


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"x": "' + "y" * 100_000 + '"}', None])
def test_an_odd_progress_file_is_no_progress(machine: Machine, content: str | None) -> None:
    """A progress file that is empty, cut, huge, a list or a FIFO is passed over."""
    machine.start("sleep", "1000")
    path = machine.attempt() / "output" / "progress.json"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_text(content)
    assert machine.status()["progress"] is None


def test_what_was_acknowledged_is_not_sent_again(machine: Machine) -> None:
    """A follower that asks for what is not delivered begins behind the last acknowledged byte."""
    machine.run("printf", "0123456789")
    with Follower(machine, "delivered") as follower:
        follower.until(protocol.LOG)
        follower.acknowledge(4)
        follower.leave()
    assert machine.status()["delivered"] == 4
    assert everything(machine, "delivered")[0] == b"456789"


def test_a_replay_does_not_move_the_mark_back(machine: Machine) -> None:
    """Acknowledging less than before, or more than was sent, does not count."""
    machine.run("printf", "0123456789")
    for offset in (7, 3, 99):
        with Follower(machine, 0) as follower:
            follower.until(protocol.LOG)
            follower.acknowledge(offset)
            follower.leave()
    assert machine.status()["delivered"] == 7


def test_a_follower_leaves_with_its_client(machine: Machine) -> None:
    """When the client's end of the connection closes, the command ends; the run does not."""
    machine.start("sleep", "1000")
    with Follower(machine) as follower:
        follower.until(protocol.HEARTBEAT)
        follower.leave()
        assert follower.process.returncode == 0
    assert machine.status()["state"] == "running"


def test_a_killed_supervisor_is_noticed_by_its_followers(machine: Machine) -> None:
    """A follower tells that no result will come, even while the command itself lives on."""
    machine.start("sleep", "1000")
    with Follower(machine) as follower:
        follower.until(protocol.HEARTBEAT)
        os.kill(machine.recorded()["supervisor_pid"], signal.SIGKILL)
        assert follower.until(protocol.GONE)["reason"] == protocol.SUPERVISOR_DIED


def test_a_reboot_is_told_from_a_death(machine: Machine) -> None:
    """A run recorded under another boot of the machine is gone because of the reboot."""
    machine.start("sleep", "1000")
    recorded = {**machine.recorded(), "boot_id": "another"}
    (machine.attempt() / protocol.PID_FILE).write_text(json.dumps(recorded))
    assert everything(machine)[1]["reason"] == protocol.REBOOTED


@pytest.mark.parametrize("content", ["", "0", None])
def test_a_start_that_died_half_way_is_gone(machine: Machine, content: str | None) -> None:
    """An attempt whose supervisor never recorded itself counts as starting for a while, then as gone."""
    machine.attempt().mkdir(parents=True)
    if content is not None:
        (machine.attempt() / protocol.PID_FILE).write_text(content)
    soon = time.time() + 3600.0  # as if it had only just been made, however long the next line takes
    os.utime(machine.attempt(), (soon, soon))
    assert machine.status()["state"] == "running"
    os.utime(machine.attempt(), (0, 0))
    assert everything(machine)[1]["reason"] == protocol.NO_PID


def test_an_ack_that_is_none_is_an_error(machine: Machine) -> None:
    """Anything but an acknowledgement on standard input is answered by an error and ends the follower."""
    machine.start("sleep", "1000")
    with Follower(machine) as follower:
        follower.until(protocol.HEARTBEAT)
        assert follower.process.stdin
        follower.process.stdin.write(b"hello\n")
        follower.process.stdin.flush()
        assert "hello" in follower.until(protocol.ERROR)["message"]
