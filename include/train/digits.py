"""Train a small convolutional network on scikit-learn's handwritten digits.

Runs on a TPU VM, a GPU or a CPU with the same model code, inside the pipeline or by hand::

    python include/train/digits.py --steps 800

It resumes from its newest whole checkpoint by itself; on a CPU the result is the same to the last bit however often
it was interrupted. What it writes and how it ends: README.md beside this file.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import digits_data
from trc_checkpoint import CheckpointStore
from trc_contract import (
    EXIT_BAD_CONFIG,
    EXIT_DONE,
    EXIT_STOPPED,
    EXIT_STOPPED_LOSING_WORK,
    Contract,
    ContractExit,
    StopRequest,
)
from trc_report import Reporter
from trc_tensorflow import Chosen, choose_strategy, tpu_target

MODEL_VERSION = 1  # part of the configuration: raise it when the model or the order of the data changes
say = functools.partial(print, flush=True)


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
    """The arguments that shape the result: the fields of ``digits_training.Settings``, and no others."""
    names = ("steps", "batch_size", "learning_rate", "dropout", "seed", "eval_every")
    return {name: getattr(options, name) for name in names}


def config_digest(settings: Mapping[str, Any], data_digest: str) -> str:
    """Digest of everything that shapes the result; a checkpoint with another one is never resumed."""
    document = {"model_version": MODEL_VERSION, "data": data_digest, **settings}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def run(options: argparse.Namespace, contract: Contract, stop: StopRequest, reporter: Reporter) -> dict[str, Any]:
    """Train to the end and return what belongs into ``result.json``.

    :raises ContractExit: if the run ends in any other way that the contract knows.
    """
    if contract.worker_count > 1:
        raise ContractExit(EXIT_BAD_CONFIG, f"this script trains on one host; this slice has {contract.worker_count}")
    say(f"run {contract.run_id}, attempt {contract.attempt}: loading the data set and TensorFlow")
    reporter.progress("importing")
    # Data and checkpoints come before TensorFlow: what is wrong with them shows before a TPU is touched.
    digits = digits_data.load(contract.data_uri)
    digest = config_digest(shaping(options), digits.digest)
    store = CheckpointStore(contract.checkpoint_dir, digest, contract.attempt, say=say)
    found = store.newest(contract.resume)
    tf = _import_tensorflow(contract.accel)
    _stop_early(stop)
    reporter.progress("initialising")
    chosen = _accelerator(tf, contract.accel, options)
    _stop_early(stop)
    say(f"training on {chosen.description}; TensorFlow {tf.__version__}, {len(digits.train)} examples")

    # Imported here: these modules import TensorFlow, and a signal must not fall into those seconds unseen.
    from digits_export import finish
    from digits_run import Attempt, Cadence, Surroundings
    from digits_training import Settings, Trainer

    trainer = Trainer(chosen, digits, Settings(**shaping(options)))
    around = Surroundings(contract, stop, reporter, say)
    attempt = Attempt(trainer, store, Cadence(options.save_every, options.save_secs), around)
    attempt.resume(found)
    attempt.train()
    values = finish(trainer, digits, contract.output_dir, contract.baseline_uri)
    reporter.progress("finished")
    origin = {"config_digest": digest, "data_digest": digits.digest, "seed": options.seed}
    return {**values, **origin, **_trained_on(chosen, tf)}


def _trained_on(chosen: Chosen, tf: Any) -> dict[str, Any]:
    versions = {"tensorflow": tf.__version__, "python": platform.python_version()}
    return {"platform": chosen.platform, "replicas": chosen.replicas, "versions": versions}


def _import_tensorflow(accel: str) -> Any:
    """Import TensorFlow with a readable log. Errors arrive as exceptions; on a CPU its log only tells of no GPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if accel == "cpu" else "2")
    return importlib.import_module("tensorflow")


def _accelerator(tf: Any, accel: str, options: argparse.Namespace) -> Chosen:
    chosen = choose_strategy(tf, accel, tpu_target(os.environ), options.cpu_replicas)
    if options.batch_size % chosen.replicas:
        raise ContractExit(
            EXIT_BAD_CONFIG, f"--batch-size {options.batch_size} cannot be shared by {chosen.replicas} replicas equally"
        )
    if chosen.platform != "tpu":
        tf.config.experimental.enable_op_determinism()
    return chosen


def _stop_early(stop: StopRequest) -> None:
    if stop.reason:
        raise ContractExit(EXIT_STOPPED, f"stopped on request ({stop.reason}) before the first step; nothing is lost")


def main(arguments: list[str] | None = None) -> int:
    """Run the script; returns its exit status."""
    try:
        contract = Contract.from_environment()
    except ContractExit as refused:
        print(f"digits.py: {refused}", file=sys.stderr)
        return refused.code
    options = parse_arguments(arguments, contract)
    stop = StopRequest(contract)
    stop.install()
    reporter = Reporter(contract)
    try:
        values = run(options, contract, stop, reporter)
    except ContractExit as ended:
        say(f"digits.py: {ended} (exit status {ended.code})")
        stopped = ended.code in (EXIT_STOPPED, EXIT_STOPPED_LOSING_WORK)
        reporter.result("stopped" if stopped else "failed", ended.code, message=str(ended))
        return ended.code
    reporter.result("done", EXIT_DONE, **values)
    say(f"done: test accuracy {values['metrics']['test_accuracy']['value']:.4f} after {values['steps']} steps")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
