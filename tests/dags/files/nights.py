# SPDX-License-Identifier: Apache-2.0
"""The DAG of another model that docs/nightly.md shows: the ten lines as a file of their own for Airflow."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "nightly.md"
(EXAMPLE, _) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

exec(EXAMPLE)
