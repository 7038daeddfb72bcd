# SPDX-License-Identifier: Apache-2.0
"""Write docs/form.md from the table of the trigger form: each field with its default, its limits and what it means.

Usage: ``form_page.py > docs/form.md``.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "plugins"))

from airflow_tpu.core.request.fields import REQUIRED
from airflow_tpu.core.request.form_fields import FORM, Form, FormField

HEAD = """# The trigger form

<!-- Written by scripts/form_page.py from plugins/airflow_tpu/core/request/form_fields.py; do not edit. -->

The fields of *Trigger* for `tpu_train` and `tpu_nightly_retrain`, and of the `conf` of every operator. The first task
checks all of them before anything is created; its message names every fault at once, with what is allowed. A default
counts where a field is left out. A DAG of yours shows its own defaults in its form, such as
`train_params(script="mine.py", deadline_hours=6)`; one without a form writes a run down as
[`TPURun(script="mine.py", deadline_hours=6)`](operators.md#tpurun). A form with a parameter of its own beside the
fields, such as `lr`, becomes a run by `form_run(arguments="--lr={{ params.lr }}")` of `airflow_tpu.params`.

What is left out and comes from the grant is taken when the run begins, from the first row that fits the fields that are
given, and stays as it was if the grant changes while the run lasts.
"""


def page(form: Form = FORM) -> str:
    """Return the whole page."""
    parts = [HEAD]
    for section, rows in groupby(form.items(), key=lambda item: item[1].section):
        parts += [f"## {section}\n", "| field | in the form | default | allowed | meaning |", "|---|---|---|---|---|"]
        parts += [*(_row(name, row) for name, row in rows), ""]
    return "\n".join(parts)


def _row(name: str, row: FormField) -> str:
    return f"| `{name}` | {row.title} | {default_of(row)} | {row.kind.limits()} | {row.help} |"


def default_of(row: FormField) -> str:
    """Return what a field is that is left out, in words."""
    if row.default == "":
        return "empty"
    value = "none" if row.default is REQUIRED else f"`{row.default}`".replace("False", "false")
    if row.from_grant:
        return f"the grant's {row.from_grant}" + ("" if row.default is REQUIRED else f", else {value}")
    return f"{value}; the form shows `{row.proposal}`" if row.proposal else value


if __name__ == "__main__":
    print(page(), end="")
