"""Runs and watches one training process on a TPU VM. Standard library only, Python 3.8.

::

    runner.py start                                         request and bundle on stdin
    runner.py follow --run NAME --attempt N --from OFFSET|delivered
    runner.py status --run NAME --attempt N
    runner.py stop   --run NAME --attempt N --grace SECS
    runner.py push   --run NAME --attempt N --to gs://bucket/prefix

and, for its own supervisor only, which reads their exit status::

    runner.py restore --run NAME --attempt N
    runner.py mirror  --run NAME --attempt N

Answers are messages of :mod:`protocol` on stdout. Exit status: 0 answered, 2 an ``error`` message was the answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import List, Optional

import protocol

from rundir import RunDir


def main(arguments: Optional[List[str]] = None) -> int:
    """Do what the command line says."""
    options = _parser().parse_args(arguments)
    out = sys.stdout.buffer
    try:
        if options.command in ("restore", "mirror"):
            return _help_supervisor(options)
        _dispatch(options)
    except BrokenPipeError:  # the client has gone; the run has not
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = getattr(error, "reason", type(error).__name__)
        out.write(protocol.encode(protocol.ERROR, reason=reason, message=str(error)))
        out.flush()
        return 2
    return 0


def _help_supervisor(options: argparse.Namespace) -> int:
    run = RunDir(options.run, options.attempt)
    if options.command == "restore":
        from restore import restore

        return restore(run)
    from mirror import mirror

    return mirror(run)


def _dispatch(options: argparse.Namespace) -> None:
    """Each command imports what it needs: follow and status must start fast."""
    out = sys.stdout.buffer
    if options.command == "start":
        from start import start

        out.write(start(sys.stdin.buffer))
        out.flush()
        return
    run = RunDir(options.run, options.attempt)
    if options.command == "follow":
        from follow import Follower

        Follower(run, out).follow(None if options.offset == "delivered" else int(options.offset))
    elif options.command == "status":
        from state import describe

        out.write(protocol.encode(protocol.STATUS, **describe(run)))
    elif options.command == "stop":
        from stop import stop

        out.write(protocol.encode(protocol.STOPPED, **stop(run, options.grace)))
    elif options.command == "push":
        from push import push

        push(run, options.to, out)
    out.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start")
    for name in ("follow", "status", "stop", "push", "restore", "mirror"):
        command = commands.add_parser(name)
        command.add_argument("--run", required=True)
        command.add_argument("--attempt", required=True, type=int)
        if name == "follow":
            command.add_argument("--from", dest="offset", default="0")
        if name == "stop":
            command.add_argument("--grace", type=float, default=30.0)
        if name == "push":
            command.add_argument("--to", required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
