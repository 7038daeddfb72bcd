# SPDX-License-Identifier: Apache-2.0
"""The training of log_lag.py: a line of its log each half second, with the instant at which it was printed.

Argument: for how many seconds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Print until the time is over."""
    end = time.time() + float(sys.argv[1])
    while time.time() < end:
        sys.stdout.write(f"tick {time.time():.3f}\n")
        sys.stdout.flush()
        time.sleep(0.5)
    Path(os.environ["TRC_OUTPUT_DIR"], "done.txt").write_text("done\n")


main()
