# SPDX-License-Identifier: Apache-2.0
"""The state that a checkpoint of digits.py holds."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds


def test_what_was_saved_is_every_variable_of_the_model_and_the_optimizer(tf: Any) -> None:
    """The named variables are complete: weights, optimizer slots and counter, tally and best value."""
    from digits_parts.data import load
    from digits_parts.training import Settings, Trainer
    from trc.tensorflow import Accelerator

    accelerator = Accelerator(tf.distribute.get_strategy(), "cpu", 1)
    trainer = Trainer(accelerator, load(""), Settings(10, 16, 1e-3, 0.3, 0, 5))
    names = set(trainer.variables())
    weights = {variable.path for variable in trainer.model.weights}
    assert len(weights) == 8
    assert weights | {"tally", "best", "adam_w/iteration"} <= names
    slots = [name for name in names if name.endswith(("_momentum", "_velocity"))]
    assert len(slots) == 2 * len(weights)
    assert not [name for name in names if "seed" in name]
