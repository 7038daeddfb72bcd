# SPDX-License-Identifier: Apache-2.0
"""The training of lost_work.py: steps and checkpoints of a fixed length, noted in a journal that outlives the machine.

Arguments: steps between two checkpoints, seconds of a step, seconds of a checkpoint, journal. It never ends by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["TRC_LIBRARY"])

from trc.checkpoint import CheckpointStore
from trc.contract import Contract, StopRequest


def main() -> int:
    """Work and save until asked to stop."""
    every, step_secs, save_secs = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    contract = Contract.from_environment()
    stop = StopRequest(contract)
    stop.install()
    store = CheckpointStore(contract.checkpoint_dir, "paced", contract.attempt)
    found = store.newest(contract.resume)
    step = found.step if found is not None else 0
    with open(sys.argv[4], "a", encoding="utf-8", buffering=1) as journal:

        def note(kind: str, began: float) -> None:
            row = {"attempt": contract.attempt, "kind": kind, "step": step, "at": began, "secs": time.time() - began}
            journal.write(json.dumps(row) + "\n")

        def save(reason: str) -> None:
            began = time.time()

            def write(directory: Path) -> None:
                (directory / "state").write_text(str(step))
                time.sleep(save_secs)

            store.commit(step, write, reason)
            note("save", began)

        note("begin", time.time())
        while not stop.reason:
            began = time.time()
            time.sleep(step_secs)
            step += 1
            note("step", began)
            if step % every == 0:
                save("periodic")
        save("signal")
        note("last", time.time())
    return 75


if __name__ == "__main__":
    sys.exit(main())
