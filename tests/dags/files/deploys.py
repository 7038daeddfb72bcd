# SPDX-License-Identifier: Apache-2.0
"""The DAG of Airflow's that docs/nightly.md shows: it starts on a new champion."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "nightly.md"
(_, EXAMPLE) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

exec(EXAMPLE)
