# SPDX-License-Identifier: Apache-2.0
"""The command line of the local cloud: ``python -m localcloud COMMAND --state-dir DIR``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localcloud.cli.control_client import CommandError, ask

TIERS = ("auto", "bwrap", "sshd", "inprocess")
_PORT_MAX = 65535
_ON_NODES = {
    "preempt": "take a node away, as Google does with spot capacity",
    "freeze": "stop every process of a node: connections stay open and silent",
    "thaw": "continue what freeze stopped",
    "drop": "cut the established SSH connections of a node; its processes live on",
    "refuse": "refuse new SSH connections to a node",
    "accept": "accept them again",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the reason of a failure goes to standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    options.given = given
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="localcloud", description="Cloud TPU, TPU VMs and Cloud Storage on one machine.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands)
    _add(commands, "down", "end it and prove that no process is left", _down)
    _add(commands, "status", "show nodes and queued resources as JSON", _status)
    meter = _add(commands, "meter", "show READY seconds, chip-hours and calls as JSON", _meter)
    meter.add_argument("--calls", action="store_true", help="list every call")
    _add(commands, "audit", "show creates and deletes as Cloud Audit Logs export them, also after down", _audit)
    for verb, text in _ON_NODES.items():
        command = _add(commands, verb, text, _on_node)
        command.add_argument("node", metavar="NODE", help="id or full name")
        command.set_defaults(verb=verb)
        if verb == "preempt":
            command.add_argument("--notice", type=float, help="seconds between TERM to the processes and the end")
    faults = _add(commands, "faults", "script faults, or show how often each was used", _faults)
    faults.add_argument("action", choices=("add", "report"))
    faults.add_argument("file", nargs="?", default="-", help="JSON, one fault or a list; - reads standard input")
    _add(commands, "reset", "remove all nodes, queued resources and faults", _reset)
    return top


def _add(commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--state-dir", type=_directory, default=_directory(".localcloud"), help="default: .localcloud")
    command.set_defaults(run=run)
    return command


def _add_up(commands: Any) -> None:
    command = _add(commands, "up", "start a local cloud", _up)
    command.add_argument("--detach", action="store_true", help="return when it is ready and let it run")
    command.add_argument("--project", default="local-project", help="its only project")
    command.add_argument("--seed", type=int, default=1, help="makes names and random events repeatable")
    command.add_argument("--speed", type=_speed, default=1.0, help="seconds of its clock per real second")
    command.add_argument("--ssh-port", type=_port, default=0, help="port of all TPU VMs; 0 picks a free one")
    command.add_argument("--tier", choices=TIERS, default="auto", help="isolation of TPU VMs")
    command.add_argument("--bucket", type=_bucket, action="append", default=[], metavar="NAME=LOCATION")


def _directory(text: str) -> Path:
    return Path(text).resolve()


def _speed(text: str) -> float:
    speed = float(text)
    if not 0 < speed < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return speed


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {_PORT_MAX}, got {text}")
    return port


def _bucket(text: str) -> tuple[str, str]:
    name, _, location = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"expected NAME=LOCATION, got {text!r}")
    return name, location or "US-CENTRAL1"


def _up(options: argparse.Namespace) -> int:
    # Imported here: the other commands must answer at once, and this loads gRPC, asyncssh and the TPU client.
    from localcloud.cli import up

    if options.detach:
        return up.detach([word for word in options.given[1:] if word != "--detach"], options.state_dir)
    from localcloud.rules.settings import Settings
    from localcloud.server import LocalCloudConfig

    config = LocalCloudConfig(
        state_dir=options.state_dir,
        settings=Settings(project_id=options.project),
        seed=options.seed,
        speed=options.speed,
        ssh_port=options.ssh_port,
        tier=options.tier,
        buckets=dict(options.bucket),
    )
    return up.serve(config)


def _down(options: argparse.Namespace) -> int:
    from localcloud.cli.down import down

    return down(options.state_dir)


def _status(options: argparse.Namespace) -> int:
    return _show(ask(options.state_dir, "/status"))


def _meter(options: argparse.Namespace) -> int:
    return _show(ask(options.state_dir, "/meter?calls=1" if options.calls else "/meter"))


def _audit(options: argparse.Namespace) -> int:
    from localcloud.tpu_api.audit import entries

    return _show(entries(options.state_dir))


def _on_node(options: argparse.Namespace) -> int:
    body = {"node": options.node, "notice": getattr(options, "notice", None)}
    return _show(ask(options.state_dir, f"/nodes/{options.verb}", body))


def _faults(options: argparse.Namespace) -> int:
    if options.action == "report":
        report = ask(options.state_dir, "/faults")
        _show(report)
        return 1 if report["unused"] else 0
    return _show(ask(options.state_dir, "/faults", _read_json(options.file)))


def _read_json(name: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise CommandError(f"Cannot read faults from {name}: {error}") from None


def _reset(options: argparse.Namespace) -> int:
    return _show(ask(options.state_dir, "/reset", {}))


def _show(answer: Any) -> int:
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return 0
