# SPDX-License-Identifier: Apache-2.0
"""The command line: up, status, the actions on nodes, faults, meter, and a ``down`` that proves what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud.tpu_v2.types import Node

from localcloud.cli.main import main
from localcloud.endpoints import Endpoints
from localcloud.testing import eventually, tpu_client
from localcloud.virtual_cloud import PARENT, spot_node
from localcloud.vm.processes import living
from localcloud.vm.processes.process_mark import PROCESS_MARK

ROOT = Path(__file__).resolve().parents[3]


class Cli:
    """Runs commands on one state directory."""

    def __init__(self, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state_dir = state_dir
        self._capsys = capsys

    def __call__(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Run a command in this process and return its exit code, output and errors."""
        self._capsys.readouterr()
        code = main([command, "--state-dir", str(self.state_dir), *arguments])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def said_last(self, word: str) -> bool:
        """Return whether a word was in what the last command wrote."""
        said = self._capsys.readouterr()
        return word in said.out + said.err

    def json(self, command: str, *arguments: str) -> Any:
        """Run a command that succeeds and return its JSON."""
        code, out, err = self(command, *arguments)
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Commands on a state directory of this test; whatever runs there afterwards is ended."""
    runner = Cli(tmp_path / "state", capsys)
    yield runner
    runner("down")


def ready_node(cli: Cli) -> Endpoints:
    """Create a node on the running cloud and return the endpoints when it is READY."""
    endpoints = Endpoints.read(cli.state_dir)
    client = tpu_client(endpoints)
    client.create_node(parent=PARENT, node_id="node-1", node=spot_node(), timeout=60)
    name = f"{PARENT}/nodes/node-1"
    eventually(lambda: client.get_node(name=name, timeout=60).state, lambda state: state == Node.State.READY)
    return endpoints


def test_a_cloud_from_up_to_down(cli: Cli) -> None:
    """``up --detach`` returns a ready cloud; nodes are shown, preempted and metered; ``down`` leaves no process."""
    code, out, _ = cli("up", "--detach", "--bucket", "trc-test=EUROPE-WEST4", "--project", "local-project")
    assert (code, "export AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT=" in out) == (0, True)
    ready_node(cli)
    status = cli.json("status")
    pids = [status["pid"], *status["vm_processes"]]
    assert [(node["state"], node["tier"]) for node in status["nodes"]] == [("READY", "spot")]
    assert cli.json("freeze", "node-1")["state"] == "READY"
    assert cli.json("thaw", "node-1")["state"] == "READY"
    assert cli.json("preempt", "node-1")["state"] == "PREEMPTED"
    meter = cli.json("meter", "--calls")
    assert meter["nodes"][0]["ready_seconds"] > 0
    assert meter["audit"][0]["method"] == "Tpu/CreateNode"
    assert "trc-test" in meter["storage"]["buckets"]
    code, out, err = cli("down")
    assert (code, "is down; its process has ended." in out, err) == (0, True, "")
    assert living.known(pids) == []
    assert living.marked(cli.state_dir) == []


def test_faults_are_added_and_accounted_for(cli: Cli, tmp_path: Path) -> None:
    """``faults add`` takes a file, refuses nonsense in words, and ``faults report`` exits 1 while one is unused."""
    cli("up", "--detach", "--tier", "inprocess")
    script = tmp_path / "faults.json"
    script.write_text('[{"id": "gone", "point": "node.timeline", "params": {"preempt_after": 0.05}}]')
    assert cli.json("faults", "add", str(script)) == {"added": ["gone"]}
    assert cli("faults", "report")[0] == 1
    ready_node(cli)
    eventually(lambda: cli.json("status")["nodes"][0]["state"], lambda state: state == "PREEMPTED")
    assert cli.json("faults", "report")["faults"] == [{"id": "gone", "point": "node.timeline", "times": 1, "used": 1}]
    script.write_text('{"point": "nowhere"}')
    code, _, err = cli("faults", "add", str(script))
    assert (code, "unknown point 'nowhere'" in err) == (1, True)
    assert "Cannot read faults" in cli("faults", "add", str(tmp_path / "missing.json"))[2]
    assert "was not found" in cli("preempt", "nobody")[2]


def test_a_second_up_is_refused(cli: Cli) -> None:
    """Two clouds in one state directory would corrupt it: the second says how to end the first."""
    cli("up", "--detach", "--tier", "inprocess")
    first = Endpoints.read(cli.state_dir).pid
    code, _, err = cli("up", "--detach", "--tier", "inprocess")
    assert (code, "runs in" in err, "down --state-dir" in err) == (1, True, True)
    assert cli.json("status")["pid"] == first


def test_commands_without_a_cloud_say_how_to_start_one(cli: Cli) -> None:
    """Every command but ``up`` and ``down`` exits 1 and names the command that starts a cloud."""
    code, _, err = cli("status")
    assert (code, "up --detach" in err) == (1, True)


def test_down_without_a_cloud_is_no_error(cli: Cli) -> None:
    """There is nothing to end, and it says so."""
    code, out, _ = cli("down")
    assert (code, out.startswith("No process of a local cloud")) == (0, True)


def test_what_keeps_a_cloud_from_starting_is_said_in_words(cli: Cli) -> None:
    """The reason is on standard error without a traceback, and no process is left."""
    code, _, err = cli("up", "--detach", "--tier", "inprocess", "--bucket", "Not_A_Bucket=US")
    assert (code, "Invalid bucket name: 'Not_A_Bucket'" in err, "Traceback" in err) == (1, True, False)
    assert living.marked(cli.state_dir) == []


@pytest.mark.parametrize(
    ("option", "value"), [("--speed", "0"), ("--ssh-port", "70000"), ("--bucket", "=US"), ("--tier", "docker")]
)
def test_options_out_of_range_are_refused(cli: Cli, option: str, value: str) -> None:
    """An option that cannot be right is refused before anything is started, naming the option."""
    with pytest.raises(SystemExit) as caught:
        cli("up", "--detach", option, value)
    assert caught.value.code == 2
    assert cli.said_last(option)


def test_down_names_and_kills_what_is_left(cli: Cli) -> None:
    """A process with the cloud's mark that outlives it is named, killed, and makes ``down`` exit 1."""
    cli.state_dir.mkdir()
    environment = {**os.environ, PROCESS_MARK: str(cli.state_dir)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as stray:
        eventually(lambda: living.marked(cli.state_dir), lambda found: len(found) == 1)
        code, _, err = cli("down")
    assert (code, str(stray.pid) in err, stray.returncode) == (1, True, -signal.SIGKILL)
    assert cli("down")[0] == 0


def test_a_process_that_hides_its_mark_is_told_by_where_it_stands(cli: Cli) -> None:
    """An emptied environment does not hide a process that stands in the directory of a VM."""
    home = cli.state_dir / "vm" / "node-1" / "home"
    home.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={}, cwd=home) as stray:
        found = eventually(lambda: living.marked(cli.state_dir), lambda found: len(found) == 1)
        code, _, _ = cli("down")
    assert ([process.pid for process in found], code, stray.returncode) == ([stray.pid], 1, -signal.SIGKILL)


def test_down_cleans_up_after_a_killed_cloud(cli: Cli) -> None:
    """After a kill -9 of the cloud ``down`` finds every process that may be left and ends it."""
    cli("up", "--detach")
    ready_node(cli)
    processes = living.known(cli.json("status")["vm_processes"])
    os.kill(Endpoints.read(cli.state_dir).pid, signal.SIGKILL)
    cli("down")
    assert living.still_alive(processes) == []
    assert cli("down")[0] == 0


def test_the_foreground_ends_in_order_on_sigterm(cli: Cli) -> None:
    """In the foreground ``up`` prints the endpoints, and SIGTERM ends it with exit code 0."""
    command = [sys.executable, "-m", "localcloud", "up", "--state-dir", str(cli.state_dir), "--tier", "inprocess"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        code = process.wait(240)
    assert (first.startswith("# The local cloud is up"), code) == (True, 0)
    assert not (cli.state_dir / "endpoints.json").exists()
