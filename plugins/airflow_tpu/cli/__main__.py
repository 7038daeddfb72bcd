# SPDX-License-Identifier: Apache-2.0
"""``python -m airflow_tpu.cli``: for where the package is on the path and not installed."""

from __future__ import annotations

import sys

from airflow_tpu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
