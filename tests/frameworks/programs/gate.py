# SPDX-License-Identifier: Apache-2.0
"""What the trainings of this folder share with the test that kills them: how far they may go, and how they ended."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OUTPUT = Path(os.environ["TRC_OUTPUT_DIR"])


def begins(step: int) -> None:
    """Log the step from which a training continues, 0 for its beginning."""
    sys.stdout.write(f"begins at step {step}\n")
    sys.stdout.flush()


def saved(step: int) -> None:
    """Report that a step is saved, as the progress of the script contract."""
    fresh = OUTPUT / "progress.json.tmp"
    fresh.write_text(json.dumps({"step": step}))
    fresh.replace(OUTPUT / "progress.json")


def passed(step: int) -> None:
    """Wait after a step until the test allows more of them, as the file ``$ALLOW`` says."""
    while int(Path(os.environ["ALLOW"]).read_text()) <= step:
        time.sleep(0.02)


def finish(name: str, loss: float, arrays: Iterable[Any]) -> None:
    """Write how a training ended: the loss, and a digest of everything that it has learned."""
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    (OUTPUT / f"{name}.json").write_text(json.dumps({"loss": loss, "digest": digest}))
