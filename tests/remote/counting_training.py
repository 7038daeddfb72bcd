# SPDX-License-Identifier: Apache-2.0
"""A training that only counts: one checkpoint a step, as far as the file ``$ALLOW`` says, until it is asked to stop."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["TRC_LIBRARY"])

from trc.checkpoint import CheckpointStore
from trc.contract import Contract, ContractExit, StopRequest

LAST = int(os.environ.get("LAST", "1000"))


def main() -> int:
    """Count from the newest checkpoint on."""
    contract = Contract.from_environment()
    stop = StopRequest(contract)
    stop.install()
    store = CheckpointStore(contract.checkpoint_dir, "digest", contract.attempt)
    found = store.newest(contract.resume)
    step = 0 if found is None else found.step
    say(f"counts from {step}; TRC_RESUME={contract.resume}")
    while step < LAST:
        if stop.reason:
            commit(store, step + 1, "signal")
            return 75
        if step < int(Path(os.environ["ALLOW"]).read_text()):
            step += 1
            commit(store, step, "periodic")
        else:
            time.sleep(0.02)
    return 0


def say(text: str) -> None:
    """Write a line to the log at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def commit(store: CheckpointStore, step: int, reason: str) -> None:
    """Save a step: its number, and a file that never changes."""

    def write(directory: Path) -> None:
        (directory / "shards").mkdir()
        (directory / "shards" / "0").write_text(f"state of step {step}")
        (directory / "vocabulary").write_text("the same at every step")

    store.commit(step, write, reason)
    (Path(os.environ["TRC_OUTPUT_DIR"]) / "progress.json").write_text(json.dumps({"step": step}))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContractExit as error:
        say(str(error))
        sys.exit(error.code)
