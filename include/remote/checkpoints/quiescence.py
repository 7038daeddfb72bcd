# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of frameworks that write no manifest: all files together, once none of them changes any more."""

from __future__ import annotations

import os
from pathlib import Path

from checkpoints.local import LocalCheckpoint, Signature, is_temporary, signature

_LONGEST_WAIT = 12  # quiet periods; then the files that are quiet are taken without the others


class Quiescence:
    """Finds the moments at which files without a manifest form a complete set.

    :param root: the checkpoint directory.
    :param quiet_secs: seconds for which no file may have changed.
    """

    def __init__(self, root: Path, quiet_secs: float) -> None:
        self._root = root
        self._quiet_secs = quiet_secs
        self._seen: dict[str, tuple[Signature, float]] = {}
        self._changed_at: float | None = None
        self._busy_since: float | None = None
        self.unsafe = False  # the writer was killed while files changed: they may be half-written

    def poll(self, now: float, step: int | None) -> LocalCheckpoint | None:
        """Return all files if none has changed for long enough; after much longer, those that have not.

        :param now: monotonic seconds.
        :param step: the progress that the script reports.
        """
        files, links = self._scan(now)
        if self._is_quiet(now):
            self._busy_since = None
            return _file_set(files, links, step)
        self._busy_since = now if self._busy_since is None else self._busy_since
        if now - self._busy_since < _LONGEST_WAIT * self._quiet_secs:
            return None
        self._busy_since = now
        quiet = {name: path for name, path in files.items() if now - self._seen[name][1] >= self._quiet_secs}
        return _file_set(quiet, links, step, tuple(sorted(set(files) - set(quiet))))

    def final(self, now: float, step: int | None, trusted: bool) -> LocalCheckpoint | None:
        """Return the files that an ended command has left.

        :param now: monotonic seconds.
        :param step: the progress that the script reports.
        :param trusted: False if the command was killed: files that changed just before may be half-written.
        """
        files, links = self._scan(now)
        self.unsafe = self.unsafe or (bool(files) and not trusted and not self._is_quiet(now))
        return None if self.unsafe else _file_set(files, links, step)

    def _is_quiet(self, now: float) -> bool:
        return self._changed_at is not None and now - self._changed_at >= self._quiet_secs

    def _scan(self, now: float) -> tuple[dict[str, Path], dict[str, str]]:
        files, links = collect_files(self._root)
        current = {name: found for name, found in ((name, signature(path)) for name, path in files.items()) if found}
        before = {name: found for name, (found, _) in self._seen.items()}
        if current != before or self._changed_at is None:
            self._changed_at = now
        self._seen = {
            name: (found, self._seen[name][1] if before.get(name) == found else now) for name, found in current.items()
        }
        return {name: files[name] for name in current}, links


def _file_set(
    files: dict[str, Path], links: dict[str, str], step: int | None, left_out: tuple[str, ...] = ()
) -> LocalCheckpoint | None:
    return LocalCheckpoint("files", None, step, files, {}, links, b"", left_out) if files else None


def collect_files(root: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return files and links below a directory by their names, without links that lead out of it."""
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for place, directories, names in os.walk(str(root)):
        directories[:] = [name for name in directories if not is_temporary(name)]
        for name in directories + names:
            path = Path(place, name)
            relative = os.path.relpath(str(path), str(root))
            if is_temporary(name) or not _can_be_object(relative):
                continue
            if path.is_symlink():
                links.update(_link(root, path, relative))
            elif name in names:
                files[relative] = path
    return files, links


def _can_be_object(name: str) -> bool:
    try:
        return len(name.encode("utf-8")) < 800 and "\n" not in name and "\r" not in name
    except UnicodeEncodeError:
        return False


def _link(root: Path, path: Path, relative: str) -> dict[str, str]:
    target, top = os.path.realpath(str(path)), os.path.realpath(str(root))
    if target == top or os.path.commonpath([target, top]) != top:
        return {}
    return {relative: os.path.relpath(target, os.path.realpath(str(path.parent)))}
