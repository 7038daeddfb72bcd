# SPDX-License-Identifier: Apache-2.0
"""Verbs as data, so that ``argparse`` and Airflow's command line are built from the same description."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.errors import TPUError

DONE = 0
REFUSED = 1
"""Exit status of a verb that was understood and has a bad answer; 2 is a wrong command line."""


@dataclass(frozen=True)
class Option:
    """One argument.

    :param flags: as ``add_argument`` takes them.
    :param settings: its keyword arguments.
    """

    flags: tuple[str, ...]
    settings: Mapping[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    """Write an :class:`Option` like a call of ``add_argument``."""
    return Option(flags, settings)


@dataclass(frozen=True)
class Verb:
    """Something that can be done.

    :param name: last word of the command.
    :param help: one line.
    :param options: its arguments.
    :param action: does it; returns the exit status, or raises a :class:`TPUError`.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    action: Callable[[argparse.Namespace], int]

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and print an error as a person reads it."""
        try:
            return self.action(args)
        except (TPUError, OSError) as error:  # OSError: a file that is not there names itself
            complain(str(error))
            return REFUSED


@dataclass(frozen=True)
class Group:
    """Verbs about one noun."""

    name: str
    help: str
    verbs: tuple[Verb, ...]


def say(text: str = "") -> None:
    """Print a line of the answer."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """Print a line that is not part of the answer."""
    sys.stderr.write(f"{text}\n")


def confirmed(question: str) -> bool:
    """Ask on the terminal; no answer is a no."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
