# SPDX-License-Identifier: Apache-2.0
"""Names, links and sizes from outside, before they are written to a disk of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.core.source.tree import LIMIT, Hostile, Member, checked, write


def member(path: str, size: int = 0, target: str | None = None) -> Member:
    """An empty file, or a link."""
    return Member(path, size, bytes, target=target)


@pytest.mark.parametrize(
    "path",
    [
        "../up.py",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "./a",
        "",
        "C:/x",
        "a\\b",
        "a\nb",
        "a\0b",
        "x\udcff",
        "n" * 256,
        "d/" * 600,
    ],
)
def test_odd_names_are_refused(path: str) -> None:
    """A way out of the folder, and what no file of a project is called."""
    with pytest.raises(Hostile):
        list(checked([member("good.py"), member(path)]))


def test_too_much_is_refused_before_it_is_read() -> None:
    """Twice the same name, and more bytes than a worker's disk is for; Unicode and spaces are welcome."""
    with pytest.raises(Hostile, match="twice"):
        list(checked([member("a"), member("a")]))
    with pytest.raises(Hostile, match=r"'b' has .* bytes"):
        list(checked([member("a", LIMIT), member("b", 1)]))
    assert [one.path for one in checked([member("학습/train model.py")])] == ["학습/train model.py"]


def test_links_become_copies_of_files_of_the_tree(tmp_path: Path) -> None:
    """A link that leads out, to itself or to nothing is left out and named; none is made."""
    file = Member("a/b.py", 2, lambda: b"ok", True)
    targets = {"in": "a/b.py", "a/c.py": "b.py", "twice": "in", "out": "../x", "root": "/etc/passwd", "loop": "loop"}
    written = write([file, *(member(name, target=target) for name, target in targets.items())], tmp_path)
    assert written.links == ("out", "root", "loop")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"a/b.py", "in", "a/c.py", "twice"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert (tmp_path / "twice").stat().st_mode & 0o100


def test_a_file_that_is_no_longer_what_was_said(tmp_path: Path) -> None:
    """Other content than announced, or a file where a folder is, is an error with its name."""
    with pytest.raises(Hostile, match="'a' has 2 bytes, 1 were said"):
        write([Member("a", 1, lambda: b"xx")], tmp_path)
    with pytest.raises(Hostile, match="is a file and a folder"):
        write([member("d"), member("d/e")], tmp_path)
