# SPDX-License-Identifier: Apache-2.0
"""A training that is killed two hundred times: logistic regression in plain floats, a checkpoint every second step.

Its state is all that shapes its future: weights, momentum and the generator that draws the batches. The argument is the
number of steps. It trains as far as the file ``$ALLOW`` says, so that a kill finds it alive.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ["TRC_LIBRARY"])

from trc.checkpoint import Checkpoint, CheckpointStore
from trc.contract import Contract, ContractExit

EVERY, SIZE, BATCH = 2, 64, 4
RATE, MOMENTUM = 0.1, 0.9


class Model:
    """Weights and whatever else the next step depends on."""

    def __init__(self) -> None:
        self.step = 0
        self.draws = random.Random(7)
        self.weights = [0.0] * SIZE
        self.speed = [0.0] * SIZE

    def learn(self) -> None:
        """One step on a batch that is drawn."""
        for _ in range(BATCH):
            sample = [self.draws.gauss(0.0, 1.0) for _ in range(SIZE)]
            score = 0.0
            for weight, value in zip(self.weights, sample, strict=True):
                score += weight * value
            error = 1.0 / (1.0 + math.exp(-score)) - float(sample[0] + sample[1] > 0.0)
            self.speed = [MOMENTUM * old - RATE * error * value for old, value in zip(self.speed, sample, strict=True)]
            self.weights = [weight + step for weight, step in zip(self.weights, self.speed, strict=True)]
        self.step += 1

    def write(self, directory: Path) -> None:
        """Two files, so that there is something between them."""
        (directory / "weights").write_bytes(pack(self.weights))
        state: list[Any] = [self.draws.getstate(), pack(self.speed).hex()]
        (directory / "state.json").write_text(json.dumps(state))

    def read(self, found: Checkpoint) -> None:
        """Continue where a checkpoint was saved."""
        (version, numbers, spare), speed = json.loads((found.directory / "state.json").read_text())
        self.step = found.step
        self.draws.setstate((version, tuple(numbers), spare))
        self.weights = unpack((found.directory / "weights").read_bytes())
        self.speed = unpack(bytes.fromhex(speed))


def pack(values: list[float]) -> bytes:
    """Every bit of some numbers."""
    return struct.pack(f"<{len(values)}d", *values)


def unpack(data: bytes) -> list[float]:
    """The numbers again."""
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def until_allowed(step: int) -> None:
    """Wait before a step until it may be made."""
    while int(Path(os.environ["ALLOW"]).read_text()) < step:
        time.sleep(0.005)


def main() -> int:
    """Learn from the newest checkpoint on; the weights are the output."""
    steps = int(sys.argv[1])
    contract = Contract.from_environment()
    store = CheckpointStore(contract.checkpoint_dir, "learning", contract.attempt)
    model = Model()
    found = store.newest(contract.resume)
    if found is not None:
        model.read(found)
    sys.stdout.write(f"begins at step {model.step}\n")
    sys.stdout.flush()
    while model.step < steps:
        until_allowed(model.step + 1)
        model.learn()
        if model.step % EVERY == 0:
            store.commit(model.step, model.write, "periodic")
        (contract.output_dir / "new").write_text(json.dumps({"step": model.step}))
        os.replace(contract.output_dir / "new", contract.output_dir / "progress.json")
    until_allowed(steps + 1)
    (contract.output_dir / "weights").write_bytes(pack(model.weights))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContractExit as refusal:
        sys.stdout.write(f"{refusal}\n")
        sys.exit(refusal.code)
