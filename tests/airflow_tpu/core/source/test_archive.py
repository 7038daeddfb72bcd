# SPDX-License-Identifier: Apache-2.0
"""Archives of a project: the kinds that people make, and those that people should not unpack."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from airflow_tpu.core.source.archive import NotAnArchive, unpack
from airflow_tpu.core.source.tree import Hostile


def tar(path: Path, members: dict[str, str | bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    """A tar archive; the target of a link is its content."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type = kind if isinstance(content, str) and kind != tarfile.REGTYPE else tarfile.REGTYPE
            if info.type == tarfile.REGTYPE:
                data = content.encode() if isinstance(content, str) else content
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                info.linkname = str(content)
                archive.addfile(info)
    return path


def packed(path: Path, members: dict[str, str]) -> Path:
    """A zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def files(archive: Path, target: Path) -> dict[str, str]:
    """What an archive becomes."""
    target.mkdir()
    unpack(archive, target)
    return {path.relative_to(target).as_posix(): path.read_text() for path in target.rglob("*") if path.is_file()}


def test_each_kind_is_unpacked(tmp_path: Path) -> None:
    """With and without a folder around all of it, and without what macOS adds."""
    wanted = {"train.py": "print(1)", "pkg/a.py": "A"}
    assert files(tar(tmp_path / "a.tar.gz", {**wanted}), tmp_path / "1") == wanted
    wrapped = {f"repo-1.2/{name}": content for name, content in wanted.items()}
    assert files(tar(tmp_path / "b.tgz", {**wrapped, "pax_global_header": ""}), tmp_path / "2") == wanted
    assert (
        files(tar(tmp_path / "c.tar", {f"./{name}": content for name, content in wanted.items()}), tmp_path / "3")
        == wanted
    )
    assert files(packed(tmp_path / "d.zip", {**wrapped, "__MACOSX/repo-1.2/._train.py": "x"}), tmp_path / "4") == wanted


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py"])
def test_a_way_out_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is written, not even what came before it."""
    for archive in (
        tar(tmp_path / "a.tar", {"a.py": "", name: ""}),
        packed(tmp_path / "a.zip", {"a.py": "", name: ""}),
    ):
        with pytest.raises(Hostile, match="evil"):
            files(archive, tmp_path / archive.suffix[1:])
        assert list((tmp_path / archive.suffix[1:]).iterdir()) == []


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    """A link out of the archive, a hard link, a device; a link to a file beside it becomes that file."""
    for number, (kind, target) in enumerate(
        [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.SYMTYPE, "../x"), (tarfile.LNKTYPE, "a.py"), (tarfile.CHRTYPE, "x")]
    ):
        archive = tar(tmp_path / f"{number}.tar", {"a.py": b"A", "bad": target}, kind)
        with pytest.raises(Hostile, match="'bad' is"):
            files(archive, tmp_path / str(number))
    assert (
        files(tar(tmp_path / "ok.tar", {"a.py": b"A", "b.py": "a.py"}, tarfile.SYMTYPE), tmp_path / "ok")["b.py"] == "A"
    )
    linked = zipfile.ZipInfo("bad")
    linked.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "l.zip", "w") as file:
        file.writestr(linked, "/etc/passwd")
    with pytest.raises(Hostile, match="'bad' is a link"):
        files(tmp_path / "l.zip", tmp_path / "l")


def test_a_bomb_is_refused_by_what_it_says(tmp_path: Path) -> None:
    """Sizes are added up from the headers, before anything is read."""
    with tarfile.open(tmp_path / "bomb.tar", "w") as archive:
        info = tarfile.TarInfo("zeros")
        info.size = 2**40
        archive.addfile(info)
    with pytest.raises(Hostile, match=r"'zeros' has 1,099,511,627,776 bytes"):
        files(tmp_path / "bomb.tar", tmp_path / "to")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_what_is_no_archive_is_said(tmp_path: Path, name: str) -> None:
    """A page of an error, saved under the name of an archive."""
    (tmp_path / name).write_text("<html>404</html>")
    with pytest.raises(NotAnArchive):
        files(tmp_path / name, tmp_path / "to")
