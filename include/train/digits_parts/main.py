# SPDX-License-Identifier: Apache-2.0
"""One attempt of digits.py, from the environment to the exit status."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import platform
import sys
from typing import Any

from digits_parts import data
from digits_parts.arguments import config_digest, parse_arguments, shaping
from trc.checkpoint import CheckpointStore
from trc.contract import (
    EXIT_BAD_CONFIG,
    EXIT_DONE,
    EXIT_STOPPED,
    EXIT_STOPPED_LOSING_WORK,
    Contract,
    ContractExit,
    StopRequest,
)
from trc.report import Reporter
from trc.tensorflow import Accelerator, choose_strategy, tpu_target

say = functools.partial(print, flush=True)


def run(options: argparse.Namespace, contract: Contract, stop: StopRequest, reporter: Reporter) -> dict[str, Any]:
    """Train to the end and return the fields of ``result.json``.

    :raises ContractExit: if the attempt ends in any other way.
    """
    if contract.worker_count > 1:
        raise ContractExit(EXIT_BAD_CONFIG, f"this script trains on one host; this slice has {contract.worker_count}")
    say(f"run {contract.run_id}, attempt {contract.attempt}: loading the data set and TensorFlow")
    reporter.progress("importing")
    # Data and checkpoints come before TensorFlow: errors in them show before a TPU is touched.
    digits = data.load(contract.data_uri)
    digest = config_digest(shaping(options), digits.digest)
    store = CheckpointStore(contract.checkpoint_dir, digest, contract.attempt, say=say)
    found = store.newest(contract.resume)
    tf = _import_tensorflow(contract.accel)
    _stop_early(stop)
    reporter.progress("initialising")
    accelerator = _choose_accelerator(tf, contract.accel, options)
    _stop_early(stop)
    say(f"training on {accelerator.description}; TensorFlow {tf.__version__}, {len(digits.train)} examples")

    # Imported here: these modules import TensorFlow, which takes seconds, and the stop request is read before.
    from digits_parts.attempt import Attempt, AttemptContext, SaveSchedule
    from digits_parts.export import finish
    from digits_parts.training import Settings, Trainer

    trainer = Trainer(accelerator, digits, Settings(**shaping(options)))
    context = AttemptContext(contract, stop, reporter, say)
    attempt = Attempt(trainer, store, SaveSchedule(options.save_every, options.save_secs), context)
    attempt.resume(found)
    attempt.train()
    values = finish(trainer, digits, contract.output_dir, contract.baseline_uri)
    reporter.progress("finished")
    origin = {"config_digest": digest, "data_digest": digits.digest, "seed": options.seed}
    return {**values, **origin, **_trained_on(accelerator, tf)}


def _trained_on(accelerator: Accelerator, tf: Any) -> dict[str, Any]:
    versions = {"tensorflow": tf.__version__, "python": platform.python_version()}
    return {"platform": accelerator.platform, "replicas": accelerator.replicas, "versions": versions}


def _import_tensorflow(accel: str) -> Any:
    """Import TensorFlow with a readable log. Errors are raised anyway; on a CPU its log only misses a GPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if accel == "cpu" else "2")
    return importlib.import_module("tensorflow")


def _choose_accelerator(tf: Any, accel: str, options: argparse.Namespace) -> Accelerator:
    accelerator = choose_strategy(tf, accel, tpu_target(os.environ), options.cpu_replicas)
    if options.batch_size % accelerator.replicas:
        raise ContractExit(
            EXIT_BAD_CONFIG,
            f"--batch-size {options.batch_size} cannot be shared by {accelerator.replicas} replicas equally",
        )
    if accelerator.platform != "tpu":
        tf.config.experimental.enable_op_determinism()
    return accelerator


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
