# SPDX-License-Identifier: Apache-2.0
"""The last step of a run: test, SavedModel, metrics.json. Doing it twice changes nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from digits_parts.data import SIDE, Digits
from digits_parts.model import DigitsModel
from digits_parts.training import Trainer, measure
from trc.contract import ContractExit
from trc.report import write_json
from trc.storage import fetch


def finish(trainer: Trainer, digits: Digits, output: Path, baseline_uri: str = "") -> dict[str, Any]:
    """Measure the test set and write the artifacts; returns what belongs into ``result.json``.

    :param baseline_uri: artifacts of a model to measure on the same examples, empty for none.
    """
    test = trainer.evaluate(digits.test)
    export(trainer, output / "saved_model")
    best, best_step = trainer.best
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "best_validation_accuracy": best,
        "best_validation_step": best_step,
        "steps": trainer.step,
    }
    write_json(output / "metrics.json", metrics)
    return {
        "steps": trainer.step,
        "metrics": _comparable(test),
        "test_examples": len(digits.test),
        **({"baseline": _measure_baseline(baseline_uri, digits)} if baseline_uri else {}),
        "artifacts": [describe(output, output / "metrics.json"), *_described(output, output / "saved_model")],
    }


def _comparable(test: Mapping[str, float]) -> dict[str, Any]:
    return {
        "test_accuracy": {"value": test["accuracy"], "higher_is_better": True},
        "test_loss": {"value": test["loss"], "higher_is_better": False},
    }


def _measure_baseline(uri: str, digits: Digits) -> dict[str, Any]:
    """Measure another model on this run's test set; one that cannot be loaded never costs this run its result."""
    try:
        with tempfile.TemporaryDirectory(prefix="baseline-") as folder:
            fetch(f"{uri}/output/saved_model", Path(folder))
            champion = tf.saved_model.load(folder)  # has to outlive the call: it owns the variables
            return {"uri": uri, "metrics": _comparable(measure(champion.serve, digits.test))}
    except (ContractExit, OSError, ValueError, AttributeError, tf.errors.OpError) as error:
        return {"uri": uri, "error": str(error)[:500]}


def export(trainer: Trainer, target: Path) -> None:
    """Write the SavedModel beside its place and move it there, so that a kill leaves no half of one.

    The weights move to a model without a strategy first: an exported one must load on any machine.
    """
    settings = trainer.settings
    plain = DigitsModel(settings.seed, settings.dropout, settings.batch_size)
    plain.set_weights(trainer.model.get_weights())
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    for abandoned in target.parent.glob(f".{target.name}.*.tmp"):
        shutil.rmtree(abandoned)
    signature = [tf.TensorSpec((None, SIDE, SIDE, 1), tf.float32, name="images")]
    plain.export(str(temporary), input_signature=signature, verbose=False)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(temporary, target)


def _described(root: Path, directory: Path) -> list[dict[str, Any]]:
    return [describe(root, path) for path in sorted(directory.rglob("*")) if path.is_file()]


def describe(root: Path, path: Path) -> dict[str, Any]:
    """Path below the root, bytes and SHA-256 of a file."""
    content = path.read_bytes()
    return {
        "path": path.relative_to(root).as_posix(),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
