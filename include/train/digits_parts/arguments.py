# SPDX-License-Identifier: Apache-2.0
"""The command line of digits.py, and which of its arguments make another run."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from trc.contract import EXIT_BAD_CONFIG, Contract

MODEL_VERSION = 1  # part of the configuration: raise it when the model or the order of the data changes


class _Parser(argparse.ArgumentParser):
    """Wrong arguments end with the contract's status, not with argparse's 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_BAD_CONFIG, f"{self.prog}: {message}\n")


def _number(kind: type, low: float, high: float = math.inf) -> Any:
    """A converter for argparse: at least ``low`` and less than ``high``."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not low <= value < high:
            raise argparse.ArgumentTypeError(f"{text} is not in the range {low} <= value < {high}")
        return value

    parse.__name__ = kind.__name__  # argparse names the converter when the text is no number at all
    return parse


def parse_arguments(arguments: list[str] | None, contract: Contract) -> argparse.Namespace:
    """Read the command line; ends the script with status 64 if it is wrong."""
    parser = _Parser(description="Train on handwritten digits.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    positive, natural, seconds = _number(int, 1), _number(int, 0), _number(float, 0)
    seed = str(contract.seed or 0)  # as text: argparse checks a default like a given value only then
    add = parser.add_argument
    add("--steps", type=positive, default=800, help="training steps in all")
    add("--batch-size", type=positive, default=64, help="examples per step, over all replicas")
    add("--learning-rate", type=_number(float, 0, 1), default=3e-3, help="at the first step; falls to 0 as a cosine")
    add("--dropout", type=_number(float, 0, 1), default=0.3, help="share of units dropped while training")
    add("--seed", type=_number(int, 0, 2**31), default=seed, help="of weights, order and dropout (also TRC_SEED)")
    add("--eval-every", type=positive, default=100, help="steps between two rows of metrics.jsonl")
    add("--save-every", type=natural, default=100, help="steps between two checkpoints; 0: by time only")
    add("--save-secs", type=seconds, default=120.0, help="seconds between two checkpoints; 0: by steps only")
    add("--cpu-replicas", type=positive, default=1, help="logical CPUs to mirror the model on, to try several replicas")
    return parser.parse_args(arguments)


def shaping(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that shape the result: the fields of ``training.Settings``, and no others."""
    names = ("steps", "batch_size", "learning_rate", "dropout", "seed", "eval_every")
    return {name: getattr(options, name) for name in names}


def config_digest(settings: Mapping[str, Any], data_digest: str) -> str:
    """Digest of everything that shapes the result; a checkpoint with another one is never resumed."""
    document = {"model_version": MODEL_VERSION, "data": data_digest, **settings}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
