# SPDX-License-Identifier: Apache-2.0
"""Write docs/operators.md from the docstrings of the operators, triggers and the task group.

Usage: ``operators_page.py > docs/operators.md``. The docstrings are the only place where parameters are explained.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "plugins"))

FIELD = re.compile(r":(?P<kind>param|return|raises)\s*(?P<name>[\w.]*):\s*(?P<text>.*)", re.DOTALL)
CODE = re.compile(r"\.\. code-block:: python\n\n((?:    .*\n?)+)")
BASE = "CloudTPUBaseOperator"
HEAD = """# Operators, triggers and the task group

<!-- Written by scripts/operators_page.py from the docstrings; do not edit. -->

Every operator also takes the arguments of Airflow's `BaseOperator`.
How they are wired: [dags/tpu_train.py](../dags/tpu_train.py), thirty lines.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, *_group(), "## What every operator takes\n", _fields(_class("operators.base", BASE))]
    for role, title in (("operators", "Operators"), ("triggers", "Triggers")):
        parts.append(f"## {title}\n")
        parts += [_section(kind) for kind in classes(role)]
    return "\n".join(parts).rstrip() + "\n"


def classes(role: str) -> Iterator[type]:
    """Public classes of a role, module by module, in the order of the files."""
    for path in sorted((ROOT / "plugins" / "airflow_tpu" / role).glob("*.py")):
        module = importlib.import_module(f"airflow_tpu.{role}.{path.stem}")
        for kind in vars(module).values():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and kind.__name__.startswith("CloudTPU") and path.stem not in ("base", "provision"):
                yield kind


def _class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"airflow_tpu.{module}"), name)


def _group() -> list[str]:
    group = importlib.import_module("airflow_tpu.task_groups").tpu_session
    run = importlib.import_module("airflow_tpu.tpu_run").TPURun
    session = ["## `tpu_session`\n", "From `airflow_tpu.task_groups`.\n", _prose(group), _fields(group)]
    run_prose = ["## `TPURun`\n", "From `airflow_tpu.tpu_run`; [every field](form.md).\n", _prose(run)]
    nightly = importlib.import_module("airflow_tpu.nightly").nightly_dag
    where = "From `airflow_tpu.nightly`; [an example](nightly.md#for-a-model-of-yours).\n"
    return [*session, *run_prose, "## `nightly_dag`\n", where, _prose(nightly), _fields(nightly)]


def _section(kind: type) -> str:
    lines = [f"### `{kind.__name__}`\n", f"From `{kind.__module__}`.\n", _prose(kind), _fields(kind)]
    return "\n".join(line for line in [*lines, _facts(kind)] if line)


def _facts(kind: Any) -> str:
    own = [
        name
        for name in getattr(kind, "template_fields", ())
        if name not in _class("operators.base", BASE).template_fields
    ]
    links = [link.name for link in getattr(kind, "operator_extra_links", ())]
    facts = [("Also templated", [f"`{name}`" for name in own]), ("Links", links)]
    return "".join(f"{title}: {', '.join(values)}.\n" for title, values in facts if values)


def _prose(thing: Any) -> str:
    """What stands before the first field; example code in a fence."""
    text = (inspect.getdoc(thing) or "").split("\n:", 1)[0]
    text = re.sub(r"``([^`]*)``", r"`\1`", re.sub(r":\w+:`~?([^`]*)`", _reference, text)).strip()
    return CODE.sub(lambda match: f"```python\n{textwrap.dedent(match[1]).strip()}\n```\n\n", text).strip() + "\n"


def _fields(thing: Any) -> str:
    """The fields of a docstring as a table."""
    rows = [_row(match) for match in _matches(inspect.getdoc(thing) or "")]
    return "\n".join(["| parameter | meaning |", "|---|---|", *rows, ""]) if rows else ""


def _matches(text: str) -> Iterable[re.Match[str]]:
    starts = [match.start() for match in re.finditer(r"^:(param|return|raises)", text, re.MULTILINE)]
    pieces = (text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True))
    return filter(None, (FIELD.match(piece) for piece in pieces))


def _row(match: re.Match[str]) -> str:
    words = " ".join(match["text"].split())
    words = re.sub(r"``([^`]*)``", r"`\1`", re.sub(r":\w+:`~?([^`]*)`", _reference, words))
    name = {"param": f"`{match['name']}`", "return": "returns", "raises": f"raises `{match['name']}`"}[match["kind"]]
    return f"| {name} | {words.replace('|', chr(92) + '|')} |"


def _reference(match: re.Match[str]) -> str:
    return f"`{match[1].rpartition('.')[2]}`"


if __name__ == "__main__":
    print(page(), end="")
