# SPDX-License-Identifier: Apache-2.0
"""Python that cannot run on the TPU VM is refused before a TPU is asked for; what may run there is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.python_files import PythonFiles
from airflow_tpu.core.source.selection import Source
from airflow_tpu.errors import ConfigError

MATCH = "match 1:\n    case 1: pass\n"


def problems(top: Path, files: dict[str, str], python: tuple[int, int] | None = (3, 10)) -> list[str]:
    """What is said of ``train.py`` among some files."""
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text, encoding="utf-8")
    found = PythonFiles("script", top, python).faults(top / "train.py", top)
    return [f"{fault.value}: {fault.problem}" for fault in found]


@pytest.mark.parametrize(
    ("text", "python", "said"),
    [
        ("print 'hello'\n", (3, 10), "does not compile with the VM's Python 3.10 in line 1: Missing parentheses"),
        (MATCH, (3, 8), "does not compile with the VM's Python 3.8 in line 2: Pattern matching is only supported"),
        (
            "x = 1\nreturn x\n",
            (3, 10),
            "does not compile with the VM's Python 3.10 in line 2: 'return' outside function",
        ),
        ("def f(:\n", None, "does not compile with Python in line 1: "),
    ],
)
def test_script_that_does_not_compile(tmp_path: Path, text: str, python: tuple[int, int] | None, said: str) -> None:
    """File, line, version and the interpreter's own words."""
    (found,) = problems(tmp_path, {"train.py": text}, python)
    assert found.startswith(f"train.py: {said}")


@pytest.mark.parametrize(("text", "python"), [(MATCH, (3, 10)), (MATCH, None), ("x = '\\d'\n", (3, 8)), ("é", (3, 99))])
def test_script_that_compiles_there(tmp_path: Path, text: str, python: tuple[int, int] | None) -> None:
    """Neither an odd escape nor the grammar of a Python that is newer than this one is judged."""
    assert problems(tmp_path, {"train.py": text}, python) == []


@pytest.mark.parametrize(
    ("text", "others", "said"),
    [
        ("import net.layers\n", {"net/__init__.py": ""}, "train.py: imports net.layers, and there is no such file"),
        ("from net.layers import x\n", {"net/__init__.py": ""}, "train.py: imports net.layers, and there is no such"),
        ("import net\n", {"net.py": "x = (\n"}, "net.py: does not compile with"),
        ("import net\n", {"net/__init__.py": "from .layers import x\n"}, "net/__init__.py: imports .layers, and there"),
    ],
)
def test_module_of_its_own_that_is_missing_or_broken(
    tmp_path: Path, text: str, others: dict[str, str], said: str
) -> None:
    """What is imported from beside the script is followed, and the file that is wrong is named."""
    (found,) = problems(tmp_path, {"train.py": text, **others})
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("import tensorflow.keras\n", {}),
        ("import numpy, net\n", {"net.py": "import net\n"}),
        ("try:\n    import net.fast\nexcept ImportError:\n    pass\n", {"net/__init__.py": ""}),
        ("def f():\n    import net.later\n", {"net/__init__.py": ""}),
        ("import google.cloud\n", {"google/readme.txt": ""}),
        ("import net.native\n", {"net/__init__.py": "", "net/native.so": ""}),
        ("import sys\nsys.path.insert(0, 'lib')\nimport net.layers\n", {"net/__init__.py": ""}),
        ("import six.moves\n", {"six.py": ""}),
        ("from . import net\n", {}),
    ],
)
def test_import_that_may_work_on_the_vm(tmp_path: Path, text: str, others: dict[str, str]) -> None:
    """An installed package, an optional import, a module elsewhere: no fault where the VM may find it."""
    assert problems(tmp_path, {"train.py": text, **others}) == []


def test_script_that_is_started_by_its_path_is_in_no_package(tmp_path: Path) -> None:
    """Python refuses its relative imports; the same file as a module of a command may have them."""
    for name, text in (("__init__.py", ""), ("net.py", ""), ("train.py", "from . import net\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = tmp_path / "train.py"
    (found,) = PythonFiles("script", tmp_path, by_path=True).faults(script, tmp_path)
    assert "line 1 imports from .: Python refuses the dot in a script that is started by its path" in str(found)
    assert list(PythonFiles("command", tmp_path).faults(script, tmp_path)) == []


def test_bundle_of_a_broken_script_is_refused_with_everything_that_is_wrong(tmp_path: Path) -> None:
    """Syntax and requirements at once, each with the field of the form that names it."""
    (tmp_path / "train.py").write_text(MATCH, encoding="utf-8")
    (tmp_path / "needs.txt").write_text("numpy>=1.26\nnumpy =< 2\n", encoding="utf-8")
    source = Source(tmp_path, "train.py", tmp_path, requirements="needs.txt", python=(3, 8))
    with pytest.raises(ConfigError) as caught:
        Bundle.build(source)
    assert [fault.field for fault in caught.value.faults] == ["script", "requirements"]
