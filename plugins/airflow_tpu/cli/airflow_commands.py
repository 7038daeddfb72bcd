# SPDX-License-Identifier: Apache-2.0
"""The same verbs as ``airflow tpu ...``; named in the provider's description under ``cli``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_tpu.cli.main import COMMANDS
from airflow_tpu.cli.verbs import Verb

if TYPE_CHECKING:
    from airflow.cli.cli_config import ActionCommand, CLICommand


def get_commands() -> list[CLICommand]:
    """The group ``tpu``. Airflow calls this each time anybody types ``airflow``."""
    from airflow.cli.cli_config import GroupCommand

    commands = [
        _command(one) if isinstance(one, Verb) else GroupCommand(one.name, one.help, [*map(_command, one.verbs)])
        for one in COMMANDS
    ]
    return [GroupCommand("tpu", "Cloud TPUs of a TPU Research Cloud grant", commands)]


def _command(verb: Verb) -> ActionCommand:
    from airflow.cli.cli_config import ActionCommand, Arg

    return ActionCommand(verb.name, verb.help, _exiting(verb), [Arg(one.flags, **one.settings) for one in verb.options])


def _exiting(verb: Verb) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        # Airflow drops what a command returns.
        if status := verb.run(args):
            sys.exit(status)

    return run
