# SPDX-License-Identifier: Apache-2.0
"""The training of the matrix: two seconds of arithmetic that resume from a checkpoint. Standard library only.

It is uploaded as a script of its own, so it repeats what it needs of the script contract.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import sys
import time

STEPS, EVERY, PAUSE = 40, 10, 0.04


def advance(state: int, step: int) -> int:
    """One step of training: it cannot be reversed, and is the same on every machine."""
    return (state * 6364136223846793005 + step + 1442695040888963407) % 2**64


def save(root: pathlib.Path, step: int, state: int) -> None:
    """Commit a checkpoint: files, then the manifest, then the name."""
    data = json.dumps(state).encode()
    work = root / f".step-{step:010d}.tmp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "state").write_bytes(data)
    (work / "MANIFEST.json").write_text(json.dumps({"step": step, "files": [{"path": "state", "size": len(data)}]}))
    os.replace(work, root / f"step-{step:010d}")


def newest(root: pathlib.Path) -> tuple[int, int]:
    """Step and state of the newest checkpoint."""
    found = sorted(root.glob("step-*/state"))
    return (int(found[-1].parent.name[5:]), json.loads(found[-1].read_text())) if found else (0, 1)


def main() -> int:
    """Train from the newest checkpoint to the last step."""
    root, output = pathlib.Path(os.environ["TRC_CHECKPOINT_DIR"]), pathlib.Path(os.environ["TRC_OUTPUT_DIR"])
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    step, state = newest(root)
    print(f"begin attempt {os.environ['TRC_ATTEMPT']} at step {step}", flush=True)
    while step < STEPS:
        state, step = advance(state, step), step + 1
        (output / "new.json").write_text(json.dumps({"step": step}))
        os.replace(output / "new.json", output / "progress.json")
        if step % EVERY == 0 or stopped:
            save(root, step, state)
        if stopped:
            return 75
        time.sleep(PAUSE)
    while "HELD" in os.environ and not (output / "go").exists():
        time.sleep(PAUSE)
    (output / "model.json").write_text(json.dumps({"state": state}))
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
