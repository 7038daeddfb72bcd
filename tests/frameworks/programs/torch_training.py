# SPDX-License-Identifier: Apache-2.0
"""A training that saves with ``torch.save``, into one file that is replaced: ``torch_training.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gate
import torch

STEPS, EVERY, BATCH = 12, 4, 8


def state_of(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    """Everything that a resumed run needs: dropout draws from the random state."""
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), "step": step,
    }  # fmt: skip


def main() -> None:
    """Train from the newest file on."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    newest, step = directory / "newest.pt", 0
    points = torch.rand(BATCH * EVERY, 2) * 2 - 1
    labels = (points[:, 0] * points[:, 1] > 0).long()
    layers = [torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2)]
    model, loss_of = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if newest.exists():
        state = torch.load(newest)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        step = state["step"]
    gate.begins(step)
    while step < STEPS:
        rows = slice(step % EVERY * BATCH, (step % EVERY + 1) * BATCH)
        optimizer.zero_grad()
        loss_of(model(points[rows]), labels[rows]).backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            torch.save(state_of(model, optimizer, step), newest.with_suffix(".tmp"))
            newest.with_suffix(".tmp").replace(newest)
            gate.saved(step)
        gate.passed(step)
    loss = loss_of(model.eval()(points), labels).item()
    gate.finish("torch", loss, [tensor.numpy() for tensor in model.state_dict().values()])


if __name__ == "__main__":
    main()
