"""Checkpoints of frameworks that write no manifest: all files together, once nothing moves among them."""

from __future__ import annotations

import os
from pathlib import Path

from checkpoints.local import Candidate, Signature, is_temporary, signature

_PATIENCE = 12  # times the stillness: then what keeps still is taken and the rest left out


class Stillness:
    """Finds the moments at which files without a manifest can be taken for a complete set.

    :param root: the checkpoint directory.
    :param still_secs: seconds for which nothing must have moved.
    """

    def __init__(self, root: Path, still_secs: float) -> None:
        self._root = root
        self._still = still_secs
        self._seen: dict[str, tuple[Signature, float]] = {}
        self._moved_at: float | None = None
        self._restless_since: float | None = None
        self.lost = False  # the writer was killed while files moved: whether they are whole, nobody knows

    def take(self, now: float, step: int | None) -> Candidate | None:
        """Return all files if none has moved for long enough; after much longer, those that have not.

        :param now: monotonic seconds.
        :param step: what the script reports as its progress.
        """
        files, links = self._look(now)
        if self._is_still(now):
            self._restless_since = None
            return _set(files, links, step)
        self._restless_since = now if self._restless_since is None else self._restless_since
        if now - self._restless_since < _PATIENCE * self._still:
            return None
        self._restless_since = now
        still = {name: path for name, path in files.items() if now - self._seen[name][1] >= self._still}
        return _set(still, links, step, tuple(sorted(set(files) - set(still))))

    def last(self, now: float, step: int | None, trusted: bool) -> Candidate | None:
        """Return what is there now that nobody writes any more.

        :param now: monotonic seconds.
        :param step: what the script reports as its progress.
        :param trusted: False if the writer was killed: what moved a moment before may be half-written.
        """
        files, links = self._look(now)
        self.lost = self.lost or (bool(files) and not trusted and not self._is_still(now))
        return None if self.lost else _set(files, links, step)

    def _is_still(self, now: float) -> bool:
        return self._moved_at is not None and now - self._moved_at >= self._still

    def _look(self, now: float) -> tuple[dict[str, Path], dict[str, str]]:
        files, links = walk(self._root)
        current = {name: found for name, found in ((name, signature(path)) for name, path in files.items()) if found}
        before = {name: found for name, (found, _) in self._seen.items()}
        if current != before or self._moved_at is None:
            self._moved_at = now
        self._seen = {
            name: (found, self._seen[name][1] if before.get(name) == found else now) for name, found in current.items()
        }
        return {name: files[name] for name in current}, links


def _set(
    files: dict[str, Path], links: dict[str, str], step: int | None, left_out: tuple[str, ...] = ()
) -> Candidate | None:
    return Candidate("files", None, step, files, {}, links, b"", left_out) if files else None


def walk(root: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return files and links below a directory by their names; a link out of it is left out."""
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
