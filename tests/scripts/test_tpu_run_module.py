# SPDX-License-Identifier: Apache-2.0
"""plugins/airflow_tpu/tpu_run.py is what the table of form fields says."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

from airflow_tpu.core.request.form_fields import FORM
from airflow_tpu.tpu_run import TPURun
from scripts import tpu_run_module

ROOT = Path(__file__).parents[2]


def test_the_module_is_up_to_date() -> None:
    """The file of the package is the one that ``python scripts/tpu_run_module.py`` writes today."""
    found = (ROOT / "plugins" / "airflow_tpu" / "tpu_run.py").read_text(encoding="utf-8")
    assert found == tpu_run_module.module()


def test_every_field_is_typed_and_explained() -> None:
    """Each row of the table is a key of the type, and a parameter of its docstring with limits and default."""
    words = " ".join((inspect.getdoc(TPURun) or "").split()).split(":param ")[1:]
    assert list(get_type_hints(TPURun)) == list(FORM) == [text.partition(":")[0] for text in words]
    assert [text for text in words if "Allowed: " not in text or not ("Left out: " in text or "Must be" in text)] == []
