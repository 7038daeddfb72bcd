# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site of the documentation: ``make docs``, then open ``build/docs/docs/index.html``.

The pages are the Markdown files as they lie in the repository, so that a link works in both. The gallery and the
reference are made from the code while the site is built. Nothing is loaded from another server: Sphinx's own theme and
search need none.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "plugins"), str(Path(__file__).parent)]
# Airflow writes its settings where it is imported first: not into the reader's home.
_HOME = tempfile.TemporaryDirectory(prefix="airflow-tpu-site-")
os.environ.update(AIRFLOW_HOME=_HOME.name, AIRFLOW__AIRFLOW_TPU__GRANT="local.yaml")

project = "Airflow TPU"
release = runpy.run_path(str(ROOT / "plugins/airflow_tpu/__init__.py"))["__version__"]
copyright = ""
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "include/**.md"]
include_patterns += ["localcloud/**.md", "docker/**.md", "benchmarks/**.md"]
exclude_patterns = ["**/.venv/**", "build/**"]
root_doc = "docs/index"
html_theme_path = ["."]
html_theme = "tpu"
html_title = "Airflow TPU"
html_show_copyright = False
html_favicon = "../../plugins/airflow_tpu/ui/static/icon.svg"
html_copy_source = False
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["misc.highlighting_failure"]

EXAMPLES = ("docs/examples", "dags")
"""Where DAGs lie that people copy."""

HOOKS = ("hooks.tpu.CloudTPUHook", "hooks.tpu.CloudTPUAsyncHook", "hooks.artifacts.ArtifactsHook")


def gallery() -> str:
    """Every example DAG: what it is for, in its own words, and the whole file."""
    files = [path for folder in EXAMPLES for path in sorted((ROOT / folder).glob("*.py")) if path.stem != "__init__"]
    return "\n".join(_example(path) for path in files)


def _example(path: Path) -> str:
    name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    code = f'```{{literalinclude}} ../{name}\n:language: python\n:caption: {name}\n:start-at: \'"""\'\n```\n'
    return f"## {path.stem}\n\n{said}\n\n{pictures(path)}\n{code}"


def pictures(path: Path) -> str:
    """Draw the DAGs of a file: a box with a frame of dashes is a setup or teardown, a coloured one needs the TPU."""
    from airflow.sdk import DAG

    found = runpy.run_path(str(path))
    return "\n".join(_raw(_picture(dag)) for dag in {id(v): v for v in found.values() if isinstance(v, DAG)}.values())


def _picture(dag: Any) -> str:
    from graph import svg

    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.topological_sort()}
    labels = {name: f"{name} [ ]" for name in edges if dag.task_dict[name].is_mapped or _in_mapped_group(dag, name)}
    styles = {name: _style(dag.task_dict[name]) for name in edges}
    return svg(edges, f"tasks of {dag.dag_id}, in their order: {', '.join(edges)}", labels, styles)


def _in_mapped_group(dag: Any, name: str) -> bool:
    return dag.task_dict[name].get_closest_mapped_task_group() is not None


def _style(task: Any) -> str:
    frame = "frame" if task.is_setup or task.is_teardown else ""
    return f"{frame} tpu" if task.task_type.startswith("CloudTPUTrain") else frame


def _raw(html: str) -> str:
    return f"```{{raw}} html\n{html}\n```\n"


def reference() -> str:
    """Hooks and the description of a run, from their docstrings."""
    parts = ["## Hooks\n"]
    parts += [_autodoc("autoclass", f"airflow_tpu.{name}", "members") for name in HOOKS]
    parts += ["## A run in Python\n", _autodoc("automodule", "airflow_tpu.tpu_run", "members")]
    parts += ["## The session\n", _autodoc("autofunction", "airflow_tpu.task_groups.tpu_session")]
    return "\n".join(parts)


def _autodoc(directive: str, name: str, *options: str) -> str:
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{lines}```\n"


MADE = {"docs/gallery": gallery, "docs/reference": reference}


FLOWCHART = re.compile(r"```mermaid\nflowchart LR\n(.*?)```\n", re.DOTALL)


def _drawn(match: re.Match[str]) -> str:
    from graph import from_text, svg

    edges, labels = from_text(match[1].strip().splitlines())
    return _raw(svg(edges, f"in this order: {', '.join(edges)}", labels, {}))


def _add(_app: Any, name: str, source: list[str]) -> None:
    source[0] = FLOWCHART.sub(_drawn, source[0])
    if name in MADE:
        source[0] += "\n" + MADE[name]()


def setup(app: Any) -> None:
    """Let Sphinx call what makes pages from the code."""
    app.connect("source-read", _add)
