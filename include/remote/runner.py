# SPDX-License-Identifier: Apache-2.0
"""Runs and supervises one training process on a TPU VM. Standard library only, Python 3.8.

::

    runner.py start                                         request and bundle on stdin
    runner.py follow --run NAME --attempt N --from OFFSET|delivered
    runner.py status --run NAME --attempt N
    runner.py stop   --run NAME --attempt N --grace SECS
    runner.py push   --run NAME --attempt N --to gs://bucket/prefix
    runner.py extend --run NAME --attempt N --deadline EPOCH

each of which counts as contact with Airflow; and, for the runner itself, which reads their exit status::

    runner.py restore --run NAME --attempt N
    runner.py install --run NAME --attempt N
    runner.py smoke   --run NAME --attempt N
    runner.py mirror  --run NAME --attempt N
    runner.py guard   --run NAME --attempt N

Answers are messages of :mod:`protocol` on stdout. Exit status: 0 answered, 2 an ``error`` message was the answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import BinaryIO, List, Optional

import protocol

from machine import contact, deadline
from machine.run_dir import RunDir

_HELPERS = ("restore", "install", "smoke", "mirror", "guard")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command of the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    out = sys.stdout.buffer
    try:
        if options.command in _HELPERS:
            return _help_runner(options)
        _dispatch(options)
    except BrokenPipeError:  # the client has left; the run continues
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = getattr(error, "reason", type(error).__name__)
        out.write(protocol.encode(protocol.ERROR, reason=reason, message=str(error)))
        out.flush()
        return 2
    return 0


def _help_runner(options: argparse.Namespace) -> int:
    run = RunDir(options.run, options.attempt)
    if options.command == "guard":
        from guard.guard import guard

        return guard(run)
    if options.command == "restore":
        from commands.restore import restore

        return restore(run)
    if options.command == "install":
        from commands.install import install

        return install(run)
    if options.command == "smoke":
        from commands.smoke import smoke

        return smoke(run)
    from checkpoints.mirror import mirror

    return mirror(run)


def _dispatch(options: argparse.Namespace) -> None:
    """Each command imports what it needs: follow and status must start fast."""
    out = sys.stdout.buffer
    if options.command == "start":
        from commands.start import start

        out.write(start(sys.stdin.buffer))
        out.flush()
        return
    _serve(options, RunDir(options.run, options.attempt), out)
    out.flush()


def _serve(options: argparse.Namespace, run: RunDir, out: BinaryIO) -> None:
    run.check_version()
    contact.record(run)
    if options.command == "follow":
        from commands.follow import LogStreamer

        LogStreamer(run, out).follow(None if options.offset == "delivered" else int(options.offset))
    elif options.command == "status":
        from machine.state import describe

        out.write(protocol.encode(protocol.STATUS, **describe(run)))
    elif options.command == "stop":
        from commands.stop import stop

        out.write(protocol.encode(protocol.STOPPED, **stop(run, options.grace)))
    elif options.command == "push":
        from commands.push import push

        push(run, options.to, out, lambda: contact.record(run))
    elif options.command == "extend":
        out.write(protocol.encode(protocol.EXTENDED, deadline=deadline.extend(run, options.deadline)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start")
    for name in ("follow", "status", "stop", "push", "extend", *_HELPERS):
        command = commands.add_parser(name)
        command.add_argument("--run", required=True)
        command.add_argument("--attempt", required=True, type=int)
        if name == "follow":
            command.add_argument("--from", dest="offset", default="0")
        if name == "stop":
            command.add_argument("--grace", type=float, default=protocol.GRACE_SECS)
        if name == "push":
            command.add_argument("--to", required=True)
        if name == "extend":
            command.add_argument("--deadline", required=True, type=float)
    return parser


if __name__ == "__main__":
    sys.exit(main())
