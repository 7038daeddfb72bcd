# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.licence.headers import LICENCE, ROOT, with_header, without_header


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", '"""Words."""\n', f'# {LICENCE}\n"""Words."""\n'),
        ("scripts/up", "#!/usr/bin/env bash\necho\n", f"#!/usr/bin/env bash\n# {LICENCE}\necho\n"),
        ("page.html", "<!doctype html>\n<html>\n", f"<!doctype html>\n<!-- {LICENCE} -->\n<html>\n"),
        ("page.css", "a {}\n", f"/* {LICENCE} */\na {{}}\n"),
        ("page.js", "a();\n", f"// {LICENCE}\na();\n"),
        ("usage.sql", "SELECT 1\n", f"-- {LICENCE}\nSELECT 1\n"),
    ],
)
def test_the_licence_stands_on_top_once(name: str, text: str, expected: str) -> None:
    """A file gets the line as a comment of its language, after what must be first; a second time it stays."""
    assert with_header(Path(name), text) == expected
    assert with_header(Path(name), expected) == expected


@pytest.mark.parametrize("name", ["static/vendor/u.js", "prices.csv", "README.md", "LICENSE", ".gitignore"])
def test_other_files_stay_as_they_are(name: str) -> None:
    """What others wrote, data and prose get no line."""
    assert with_header(Path(name), "text\n") == "text\n"


def test_a_file_without_the_line_is_named(tmp_path: Path) -> None:
    """A new source file without the line is found, tracked by git or not, an empty one is not."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "new.py").write_text("a = 1\n")
    (tmp_path / "empty.py").touch()
    (tmp_path / "good.py").write_text(f"# {LICENCE}\n")
    assert list(without_header(tmp_path)) == [tmp_path / "new.py"]


def test_every_source_file_names_its_licence() -> None:
    """Each file of ours carries the line; ``scripts/format`` adds it."""
    missing = [str(path.relative_to(ROOT)) for path in without_header(ROOT)]
    assert missing == [], "run scripts/format, which adds the line that names the licence"
