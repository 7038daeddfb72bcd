# SPDX-License-Identifier: Apache-2.0
"""Which of ten classes a small picture belongs to, in PyTorch: on all cores of a TPU by PyTorch/XLA, a GPU or a CPU.

::

    python train.py --data gs://my-bucket/digits.npz --steps 5000

The checkpoint is one file of ``torch.save`` that is replaced as a whole. Killed at any instant the training continues
from it and ends with the same loss: the examples and the dropout of a step depend only on the seed and the step.
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
import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

OUTPUT = Path(os.environ.get("TRC_OUTPUT_DIR", "output"))
CHECKPOINT = Path(os.environ.get("TRC_CHECKPOINT_DIR", "checkpoints"), "newest.pt")


class Device:
    """What trains: all cores of a TPU, each on its share of a batch, or a GPU, or a CPU.

    :param wanted: tpu, gpu, cpu, or auto for a GPU if there is one.
    """

    def __init__(self, wanted: str) -> None:
        self._xla = self._mesh = None
        if wanted == "tpu":
            import torch_xla
            from torch_xla import runtime
            from torch_xla.distributed import spmd

            runtime.use_spmd()
            cores = runtime.global_runtime_device_count()
            self._xla, self._spmd = torch_xla, spmd
            self._mesh = spmd.Mesh(np.arange(cores), (cores,), ("data",))
            self.name = torch_xla.device()
        else:
            on_gpu = wanted == "gpu" or (wanted == "auto" and torch.cuda.is_available())
            self.name = torch.device("cuda" if on_gpu else "cpu")

    def batch(self, examples: Any) -> Any:
        """Return a batch where the model is."""
        moved = torch.from_numpy(examples).to(self.name)
        if self._xla:
            self._spmd.mark_sharding(moved, self._mesh, ("data", *[None] * (moved.ndim - 1)))
        return moved

    def seed(self, number: int) -> None:
        """Begin a row of random numbers."""
        torch.manual_seed(number)
        if self._xla:
            self._xla.manual_seed(number)

    def finish_step(self) -> None:
        """Run what has been recorded: PyTorch/XLA compiles a step as a whole."""
        if self._xla:
            self._xla.sync()


class Training:
    """Model, optimizer and examples on a device."""

    def __init__(self, options: argparse.Namespace, device: Device) -> None:
        self.options, self.device, self.step = options, device, 0
        with fsspec.open(options.data, "rb") as file, np.load(file) as found:
            self._pictures, self._labels = found["images"][:, None].astype("float32"), found["labels"].astype("int64")
        device.seed(options.seed)
        layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()]
        self.model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(512, 10)).to(device.name)
        self._loss = nn.CrossEntropyLoss()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.learning_rate)

    def advance(self) -> None:
        """Train one step."""
        rows = np.random.default_rng((self.options.seed, self.step)).integers(0, len(self._labels), self.options.batch)
        self.device.seed(self.options.seed + self.step)  # of dropout
        self._optimizer.zero_grad()
        logits = self.model(self.device.batch(self._pictures[rows]))
        self._loss(logits, self.device.batch(self._labels[rows])).backward()
        self._optimizer.step()
        self.device.finish_step()
        self.step += 1

    def evaluate(self) -> dict[str, float]:
        """Return loss and accuracy on all examples, batch after batch: one of another size would be compiled anew."""
        size, whole = self.options.batch, len(self._labels) // self.options.batch * self.options.batch
        with torch.no_grad():
            parts = [self._pictures[at : at + size] for at in range(0, whole, size)]
            logits = torch.cat([self.model.eval()(self.device.batch(part)).cpu() for part in parts])
        self.model.train()
        labels = torch.from_numpy(self._labels[:whole])
        accuracy = (logits.argmax(1) == labels).float().mean().item()
        return {"loss": self._loss(logits, labels).item(), "accuracy": accuracy}

    def save(self) -> None:
        """Replace the checkpoint: the name that is read never stands for half a file."""
        state = {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": self.step}
        fresh = CHECKPOINT.with_suffix(".tmp")
        torch.save(tree_map_only(torch.Tensor, torch.Tensor.cpu, state), fresh)
        fresh.replace(CHECKPOINT)

    def restore(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if CHECKPOINT.exists():
            state = torch.load(CHECKPOINT, map_location="cpu")
            self.model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]


def run(training: Training, stopping: Callable[[], bool]) -> None:
    """Train from the checkpoint to the last step."""
    total, every = training.options.steps, training.options.save_every
    training.restore()
    print(f"training on {training.device.name}, from step {training.step} of {total}", flush=True)
    while training.step < total:
        training.advance()
        stop = stopping()
        if stop or training.step % every == 0 or training.step == total:
            training.save()
            write_json("progress", step=training.step, total_steps=total)
            print(f"step {training.step}: {training.evaluate()}", flush=True)
        if stop:
            sys.exit(75)  # stopped on request, and the checkpoint is on the disk


def write_json(name: str, **document: Any) -> None:
    """Replace a file of the output as a whole."""
    fresh = OUTPUT / f"{name}.json.tmp"
    fresh.write_text(json.dumps(document))
    fresh.replace(OUTPUT / f"{name}.json")


def main() -> None:
    """Train, and write the weights and the figures."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    data = os.environ.get("TRC_DATA_URI")
    parser.add_argument(
        "--data", default=data, required=not data, help=".npz, local or gs://: images (n, y, x), labels"
    )
    parser.add_argument("--steps", type=int, default=2000, help="training steps in all")
    parser.add_argument("--save-every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--batch", type=int, default=256, help="examples of a step, over all cores")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of AdamW")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRC_SEED") or 0), help="of everything random")
    options = parser.parse_args()
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    for folder in (OUTPUT, CHECKPOINT.parent):
        folder.mkdir(parents=True, exist_ok=True)
    wanted = os.environ.get("TRC_ACCEL", "auto")
    try:
        device = Device(wanted)
        torch.ones(1).to(device.name)
    except (AssertionError, ImportError, RuntimeError) as error:
        print(f"the {wanted} did not initialise: {error}", file=sys.stderr)
        sys.exit(69)
    training = Training(options, device)
    run(training, lambda: bool(stops))
    torch.save(training.model.cpu().state_dict(), OUTPUT / "weights.pt")
    write_json("metrics", **training.evaluate())


if __name__ == "__main__":
    main()
