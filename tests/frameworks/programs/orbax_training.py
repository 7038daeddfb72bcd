# SPDX-License-Identifier: Apache-2.0
"""A JAX training that saves with Orbax, in the background: ``orbax_training.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gate
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

STEPS, EVERY, BATCH = 12, 4, 8
OPTIMIZER = optax.adam(0.01)


def loss_of(weights: Any, points: Any, labels: Any) -> Any:
    """Cross entropy of two layers."""
    logits = jnp.tanh(points @ weights["in"]) @ weights["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit  # type: ignore[untyped-decorator]  # JAX may not be installed
def train(state: Any, step: Any) -> Any:
    """One step; its examples are a function of its number."""
    points = jax.random.uniform(jax.random.fold_in(jax.random.key(1), step), (BATCH, 2), minval=-1.0)
    labels = (points[:, 0] * points[:, 1] > 0).astype(int)
    gradients = jax.grad(loss_of)(state["weights"], points, labels)
    updates, optimizer = OPTIMIZER.update(gradients, state["optimizer"])
    return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": optimizer}


def main() -> None:
    """Train from the newest checkpoint on."""
    one, two = jax.random.split(jax.random.key(0))
    weights = {"in": jax.random.normal(one, (2, 16)), "out": jax.random.normal(two, (16, 2)) / 4}
    state = {"weights": weights, "optimizer": OPTIMIZER.init(weights)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=EVERY)
    manager = ocp.CheckpointManager(Path(sys.argv[1]).absolute(), options=options)
    step = manager.latest_step() or 0
    if step:
        state = manager.restore(step, args=ocp.args.StandardRestore(state))
    gate.begins(step)
    while step < STEPS:
        state = train(state, step)
        step += 1
        if manager.save(step, args=ocp.args.StandardSave(state)):
            manager.wait_until_finished()
            gate.saved(step)
        gate.passed(step)
    points = jnp.asarray(np.random.RandomState(0).uniform(-1, 1, (64, 2)))
    loss = loss_of(state["weights"], points, (points[:, 0] * points[:, 1] > 0).astype(int))
    gate.finish("orbax", float(loss), [np.asarray(leaf) for leaf in jax.tree.leaves(state)])


if __name__ == "__main__":
    main()
