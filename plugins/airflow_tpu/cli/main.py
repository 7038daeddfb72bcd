# SPDX-License-Identifier: Apache-2.0
"""The console script ``airflow-tpu``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from airflow_tpu import __version__
from airflow_tpu.cli import catalogue, grant, init, usage
from airflow_tpu.cli.verbs import Group, Verb

COMMANDS: tuple[Group | Verb, ...] = (init.VERB, grant.GROUP, usage.VERB, catalogue.GROUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: its words; None takes the process's own.
    :return: exit status: 0 done, 1 refused or bad news, 2 wrong command line.
    """
    args = parser().parse_args(argv)
    status: int = args.verb.run(args)
    return status


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser("airflow-tpu", description="Cloud TPUs of a TPU Research Cloud grant.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        if isinstance(command, Verb):
            _add(commands, command)
            continue
        group = commands.add_parser(command.name, help=command.help, description=command.help)
        inner = group.add_subparsers(metavar="COMMAND", required=True)
        for verb in command.verbs:
            _add(inner, verb)
    return top


def _add(commands: Any, verb: Verb) -> None:
    found = commands.add_parser(verb.name, help=verb.help, description=verb.help)
    for option in verb.options:
        found.add_argument(*option.flags, **option.settings)
    found.set_defaults(verb=verb)
