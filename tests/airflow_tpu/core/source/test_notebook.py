# SPDX-License-Identifier: Apache-2.0
"""Notebooks before a TPU is asked for: which run, and with which packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu.core.request.command import command
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.notebook import notebook_problems
from airflow_tpu.core.source.selection import Source


def notebook(path: Path, **metadata: Any) -> Path:
    """A notebook with one cell."""
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": ["print(1)"],
    }
    content = {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({}, ""),
        ({"kernelspec": {"name": "python3", "language": "python"}}, ""),
        ({"kernelspec": {"name": "conda-env-mine-py", "display_name": "x", "language": "python"}}, ""),
        ({"language_info": {"name": "python"}}, ""),
        ({"kernelspec": {"name": "julia-1.10", "language": "julia"}}, "needs the kernel 'julia-1.10' for julia"),
        ({"language_info": {"name": "R"}}, "needs the kernel 'R' for R"),
    ],
)
def test_the_kernel_is_looked_at_first(tmp_path: Path, metadata: dict[str, Any], problem: str) -> None:
    """Any kernel of Python is the one of the run's environment; another language is named."""
    found = list(notebook_problems(notebook(tmp_path / "nb.ipynb", **metadata)))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


@pytest.mark.parametrize("content", ["", "{}", '{"nbformat": 3, "worksheets": []}', "[1]", '{"metadata": 1}'])
def test_what_is_no_notebook_is_said(tmp_path: Path, content: str) -> None:
    """An empty file, other JSON, a format of 2013."""
    (tmp_path / "nb.ipynb").write_text(content)
    assert "is no notebook of format 4" in "".join(notebook_problems(tmp_path / "nb.ipynb"))


@pytest.mark.parametrize(
    ("line", "program", "lines"),
    [
        (None, ("python3", "-m", "trc.notebook", "./nb.ipynb"), ["nbclient>=0.10,<1", "ipykernel>=6,<8"]),
        ("papermill nb.ipynb out.ipynb -p lr 1", None, ["papermill>=2.6,<3", "ipykernel>=6,<8"]),
        ("jupyter nbconvert --execute nb.ipynb", None, ["nbconvert>=7,<8", "ipykernel>=6,<8"]),
        ("uv run nb.py", None, ["uv>=0.4"]),
        ("python nb.py | tee x; LR=1 uv run nb.py", None, ["uv>=0.4"]),
        ("echo uv run && python nb.py", None, []),
    ],
)
def test_what_runs_a_notebook_is_installed(
    tmp_path: Path, line: str | None, program: tuple[str, ...] | None, lines: list[str]
) -> None:
    """Beside what the project itself needs, by the one installation step that there is."""
    notebook(tmp_path / "nb.ipynb")
    (tmp_path / "nb.py").write_text("")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    script = "" if line else "nb.ipynb"
    asked = command(line) if line else None
    bundle = Bundle.build(Source(tmp_path, script, tmp_path / "home", (), "requirements.txt", asked))
    assert bundle.program == (program or (asked.words if asked else ()))
    assert (bundle.requirements, list(bundle.packages)) == ("requirements.txt", lines)
