# SPDX-License-Identifier: Apache-2.0
"""Notebooks: what is known to fail on the VM, and the packages that run one there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

_RUNS = ("nbclient>=0.10,<1", "ipykernel>=6,<8")
"""What ``include/train/trc/notebook.py`` imports; 0.10 has the hooks that it uses."""

_SIZE_LIMIT = 32 * 1024 * 1024  # bytes; a bigger one does not travel
_FORMAT = 4  # https://nbformat.readthedocs.io/en/latest/format_description.html; since 2014


def notebook_problems(path: Path) -> Iterator[str]:
    """What of a notebook fails on the VM, in words.

    :param path: on this machine.
    """
    if path.stat().st_size > _SIZE_LIMIT:
        return  # the limit of the bundle says so
    try:
        notebook = json.loads(path.read_bytes())
        metadata = notebook["metadata"]
        language = metadata.get("kernelspec", {}).get("language") or metadata.get("language_info", {}).get("name")
        kernel = metadata.get("kernelspec", {}).get("name", "")
        version, cells = notebook["nbformat"], notebook["cells"]
    except (AttributeError, KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError):
        yield "is no notebook of format 4: open it in Jupyter and save it again"
        return
    if version != _FORMAT or not isinstance(cells, list):
        yield f"is a notebook of format {version}; open it in Jupyter and save it again"
    if (language or "python").lower() != "python":
        yield (
            f"needs the kernel {kernel or language!r} for {language}, and notebooks run with Python only; save it as "
            f"a script ('jupyter nbconvert --to script {path.name}'), and give that"
        )


def notebook_packages(script: Path | None) -> tuple[str, ...]:
    """Return what runs a script that is a notebook, nothing for another one.

    :param script: what is started.
    """
    return _RUNS if script is not None and script.suffix.lower() == ".ipynb" else ()
