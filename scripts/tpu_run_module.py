# SPDX-License-Identifier: Apache-2.0
"""Write plugins/airflow_tpu/tpu_run.py from the table of the trigger form: a run as it is written in Python.

Usage: ``tpu_run_module.py > tpu_run.py``, then move it there. An editor completes and checks what stands in a file, not
what is made when a program runs.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "plugins"))
sys.path.append(str(Path(__file__).parents[1]))

from airflow_tpu.core.request.fields import REQUIRED
from airflow_tpu.core.request.form_fields import FORM, Form, FormField
from scripts.form_page import default_of

WIDTH = 120
HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""A run written in Python: which script, on which TPU, where its results go, and its limits.

Written by scripts/tpu_run_module.py from plugins/airflow_tpu/core/request/form_fields.py; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict


class KnownLater(Protocol):
    """A value that only the running task knows: what another task returned, an argument of a mapped task group."""

    def resolve(self, context: Any) -> Any:
        """Return the value; Airflow calls it."""


Text: TypeAlias = str | KnownLater
"""A text, which may hold Jinja templates."""

Words: TypeAlias = Text | Sequence[str | float | KnownLater]
"""A line as a shell reads it, or one word each."""

Variables: TypeAlias = Text | Mapping[str, str | float | KnownLater]
"""``NAME=value`` lines, or a mapping."""

Whole: TypeAlias = int | Text
Number: TypeAlias = float | Text
Flag: TypeAlias = bool | Text
"""Numbers and flags; a template gives them as text."""


class TPURun(TypedDict, total=False):
    """One run: the ``conf`` of :func:`airflow_tpu.task_groups.tpu_session` and of every operator.

    .. code-block:: python

        run = TPURun(script="train.py", accelerator_type="v2-8", arguments="--lr={{ params.lr }}")
        with tpu_session(conf=run) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments)

    Only the script (or command) must be given; the grant fills in TPU and bucket, as it does in the form, when the run
    begins. The fields are those of the form. Every text may hold Jinja templates, in lists and mappings too. Type
    checkers know the names; a wrong one also fails the import of the DAG. ``{**run, "seed": 2}`` is the same run with
    another seed.
'''
FOOT = '''

Conf: TypeAlias = TPURun | Mapping[str, Any] | str | KnownLater
"""What operators take as ``conf``: a run, any mapping of its fields, or JSON text."""
'''


def module(form: Form = FORM) -> str:
    """Return the whole module."""
    words = [line for name, row in form.items() for line in _words(name, row)]
    fields = [f"    {name}: {row.kind.annotation}" for name, row in form.items()]
    return "\n".join([HEAD, *words, '    """', "", *fields, FOOT])


def _words(name: str, row: FormField) -> list[str]:
    must = row.default is REQUIRED and not row.from_grant
    ends = "Must be given" if must else f"Left out: {default_of(row)}"
    text = f":param {name}: {row.help} Allowed: {row.kind.limits()}. {ends}."
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "``")
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )


if __name__ == "__main__":
    print(module(), end="")
