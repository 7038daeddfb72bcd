# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site of the documentation: ``make docs``, then open ``build/docs/docs/index.html``.

The pages are the Markdown files as they lie in the repository, so that a link works in both. The gallery and the
reference are made from the code while the site is built. Nothing is loaded from another server: Sphinx's own theme and
search need none.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins"))

project = "Airflow TPU"
copyright = ""
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "include/**.md"]
include_patterns += ["localcloud/**.md", "docker/**.md", "benchmarks/**.md"]
exclude_patterns = ["**/.venv/**", "build/**"]
root_doc = "docs/index"
html_theme = "alabaster"
html_theme_options = {
    "description": "Train on free Cloud TPUs from Airflow",
    "fixed_sidebar": True,
    "page_width": "72em",
}
html_show_copyright = False
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
    shown = (
        f"\n![](../{path.with_suffix('.png').relative_to(ROOT).as_posix()})\n"
        if path.with_suffix(".png").is_file()
        else ""
    )
    code = f"```{{literalinclude}} ../{name}\n:language: python\n:caption: {name}\n```\n"
    return f"## {path.stem}\n\n{said}\n{shown}\n{code}"


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


def _add(_app: Any, name: str, source: list[str]) -> None:
    if name in MADE:
        source[0] += "\n" + MADE[name]()


def setup(app: Any) -> None:
    """Let Sphinx call what makes pages from the code."""
    from pygments.lexers.special import TextLexer
    from sphinx.highlighting import lexers

    lexers["mermaid"] = TextLexer()
    app.connect("source-read", _add)
