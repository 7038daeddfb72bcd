# SPDX-License-Identifier: Apache-2.0
"""The training of in_airflow.py: lines of 100 bytes as fast as they can be printed, and then the instant of the end.

Argument: how many bytes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Print, then end."""
    for number in range(int(sys.argv[1]) // 100):
        sys.stdout.write(f"line {number:010d} ".ljust(99, ".") + "\n")
    sys.stdout.write(f"ended {time.time():.3f}\n")
    sys.stdout.flush()
    Path(os.environ["TRC_OUTPUT_DIR"], "done.txt").write_text("done\n")


main()
