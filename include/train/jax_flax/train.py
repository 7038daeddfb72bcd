# SPDX-License-Identifier: Apache-2.0
"""A transformer that learns to write a text byte by byte, in JAX and Flax, on all devices there are: TPU, GPU or CPU.

::

    python train.py --data gs://my-bucket/shakespeare.txt --steps 5000

Killed at any instant it continues from the newest checkpoint that Orbax has completed, and ends with the same loss:
weights and optimizer are in the checkpoint, and the examples of a step depend only on the seed and the step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax import serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec

OUTPUT = Path(os.environ.get("TRC_OUTPUT_DIR", "output"))
CHECKPOINTS = Path(os.environ.get("TRC_CHECKPOINT_DIR", "checkpoints"))


class Block(nn.Module):
    """One layer: attention to what came before, then two dense layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        before = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=before)
        wide = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(wide)


class Transformer(nn.Module):
    """From the bytes of a text to the logits of the byte that follows each of them."""

    width: int
    layers: int

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        x = nn.Embed(256, self.width)(text) + nn.Embed(text.shape[1], self.width)(jnp.arange(text.shape[1]))
        for _ in range(self.layers):
            x = Block()(x)
        return nn.Dense(256)(nn.LayerNorm()(x))


class Training:
    """The model, its optimizer, and the text, on every device.

    :param options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        mesh = Mesh(np.array(jax.devices()), ("data",))
        everywhere, self._divided = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
        with fsspec.open(options.data, "rb") as file:
            self._text = jax.device_put(np.frombuffer(file.read(), np.uint8), everywhere)
        self._model = Transformer(options.width, options.layers)
        self._optimizer = optax.adamw(optax.cosine_decay_schedule(options.learning_rate, options.steps))
        weights = self._model.init(jax.random.key(options.seed), jnp.zeros((1, options.length), int))
        self.state = jax.device_put({"weights": weights, "optimizer": self._optimizer.init(weights)}, everywhere)
        self._advance = jax.jit(self._step)

    def advance(self, step: int) -> None:
        """Train one step."""
        self.state = self._advance(self.state, step)

    def loss(self) -> float:
        """Return the loss on the examples of no step."""
        return float(jax.jit(self._loss)(self.state["weights"], -1))

    def _loss(self, weights: Any, step: Any) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(self.options.seed), step)
        starts = jax.random.randint(key, (self.options.batch, 1), 0, len(self._text) - self.options.length)
        rows = self._text[starts + jnp.arange(self.options.length + 1)].astype(int)
        rows = jax.lax.with_sharding_constraint(rows, self._divided)
        logits = self._model.apply(weights, rows[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()

    def _step(self, state: Any, step: Any) -> Any:
        gradients = jax.grad(self._loss)(state["weights"], step)
        updates, memory = self._optimizer.update(gradients, state["optimizer"], state["weights"])
        return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": memory}


def run(training: Training, stopping: Callable[[], bool]) -> None:
    """Train from the newest checkpoint to the last step."""
    total, every = training.options.steps, training.options.save_every
    keep = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(CHECKPOINTS.absolute(), options=keep) as checkpoints:
        step = checkpoints.latest_step() or 0
        if step:
            training.state = checkpoints.restore(step, args=ocp.args.StandardRestore(training.state))
        print(f"training on {jax.device_count()} x {jax.default_backend()}, from step {step} of {total}", flush=True)
        while step < total:
            training.advance(step)
            step += 1
            stop = stopping()
            if stop or step % every == 0 or step == total:
                checkpoints.save(step, args=ocp.args.StandardSave(training.state))  # written in the background
                write_json("progress", step=step, total_steps=total)
                print(f"step {step}: loss {training.loss():.4f}", flush=True)
            if stop:
                checkpoints.wait_until_finished()
                sys.exit(75)  # stopped on request, and the checkpoint is on the disk


def write_json(name: str, **document: Any) -> None:
    """Replace a file of the output as a whole."""
    fresh = OUTPUT / f"{name}.json.tmp"
    fresh.write_text(json.dumps(document))
    fresh.replace(OUTPUT / f"{name}.json")


def main() -> None:
    """Train, and write the weights and the loss."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("TRC_DATA_URI") or __file__, help="a text, local or gs://")
    parser.add_argument("--steps", type=int, default=2000, help="training steps in all")
    parser.add_argument("--save-every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--batch", type=int, default=64, help="examples of a step, over all devices")
    parser.add_argument("--length", type=int, default=128, help="bytes of an example")
    parser.add_argument("--width", type=int, default=128, help="of the model")
    parser.add_argument("--layers", type=int, default=4, help="of the model")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the beginning")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRC_SEED") or 0), help="of everything random")
    options = parser.parse_args()
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    wanted = os.environ.get("TRC_ACCEL", "auto")
    if wanted not in ("auto", jax.default_backend()):
        print(f"a {wanted} was promised, JAX has found a {jax.default_backend()}", file=sys.stderr)
        sys.exit(69)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    training = Training(options)
    run(training, lambda: bool(stops))
    (OUTPUT / "weights.msgpack").write_bytes(serialization.to_bytes(training.state["weights"]))
    write_json("metrics", loss=training.loss())


if __name__ == "__main__":
    main()
