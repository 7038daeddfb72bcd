# SPDX-License-Identifier: Apache-2.0
"""A training that steps until a test lets it end: until the object ``go/$STORY`` is in the bucket.

With ``SAVES`` in its environment it commits a checkpoint every so many steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

BUCKET = os.environ["STORAGE_EMULATOR_HOST"] + "/storage/v1/b/trc-local/o/"
UPLOAD = os.environ["STORAGE_EMULATOR_HOST"] + "/upload/storage/v1/b/trc-local/o?uploadType=media&name="
STORY, ATTEMPT = os.environ["STORY"], os.environ["TRC_ATTEMPT"]
OUTPUT, CHECKPOINTS = Path(os.environ["TRC_OUTPUT_DIR"]), Path(os.environ["TRC_CHECKPOINT_DIR"])
SAVES = int(os.environ.get("SAVES", "0"))


def may_end() -> bool:
    """Whether the object is there."""
    try:
        with urllib.request.urlopen(f"{BUCKET}go%2F{STORY}", timeout=30):
            return True
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False


def say(line: str) -> None:
    """Write a line of the log, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save(step: int) -> None:
    """Commit a checkpoint: its folder has its name when it is whole."""
    work = CHECKPOINTS / ".new"
    work.mkdir(parents=True)
    (work / "state").write_text(str(step))
    (work / "MANIFEST.json").write_text(
        json.dumps({"step": step, "files": [{"path": "state", "size": len(str(step))}]})
    )
    os.replace(work, CHECKPOINTS / f"step-{step:06d}")


def main() -> None:
    """Say that a copy has begun, then step."""
    urllib.request.urlopen(f"{UPLOAD}starts%2F{STORY}%2F{ATTEMPT}-{time.time_ns()}", b"begun", 30).close()
    say(f"begin attempt {ATTEMPT}")
    step = 0
    while not may_end():
        say(f"step {step} done")
        (OUTPUT / "new.json").write_text(json.dumps({"step": step}))
        os.replace(OUTPUT / "new.json", OUTPUT / "progress.json")
        step += 1
        if SAVES and step % SAVES == 0:
            save(step)
        time.sleep(1)
    (OUTPUT / "model.txt").write_text("trained")
    (OUTPUT / "result.json").write_text(json.dumps({"metrics": {"loss": {"value": 1.0, "higher_is_better": False}}}))


main()
