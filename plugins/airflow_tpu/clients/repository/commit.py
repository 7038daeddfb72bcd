# SPDX-License-Identifier: Apache-2.0
"""One commit of a repository: fetched without its history, its files listed and read from the object database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from airflow_tpu.clients.repository.git import Git
from airflow_tpu.core.source.tree import Member
from airflow_tpu.errors import ConfigError, Fault

_LINK, _SUBMODULE, _EXECUTABLE = "120000", "160000", "100755"
_FSCK_SKIPPED = ("zeroPaddedFilemode", "missingSpaceBeforeDate", "badTimezone", "missingNameBeforeEmail")
"""Flaws of old commits that some well-known repositories have, and that do not matter to the files."""


@dataclass(frozen=True)
class CommitFiles:
    """The files of a commit.

    :param members: files and links, by their path in the repository.
    :param submodules: paths of other repositories that it refers to; they are not fetched.
    """

    members: tuple[Member, ...]
    submodules: tuple[str, ...] = ()


def list_references(git: Git) -> str:
    """Return what ``git ls-remote`` says.

    :raises SourceUnreachable: the server did not answer.
    :raises ConfigError: it refuses, or git is not there.
    """
    return git.remote("ls-remote", "--", git.url).decode("utf-8", "replace")


def fetch(git: Git, commit: str, name: str) -> None:
    """Fetch one commit, without its history.

    :param commit: its 40 digits.
    :param name: reference that named it; asked for where the server gives no commit by its digits.
    :raises SourceUnreachable: the server did not answer.
    :raises ConfigError: the server has no such commit (any more).
    """
    git.local("init", "--quiet", "--bare", "--template=", ".")
    tolerant = [word for flaw in _FSCK_SKIPPED for word in ("-c", f"fetch.fsck.{flaw}=ignore")]
    call = (*tolerant, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", git.url)
    try:
        git.remote(*call, commit)
        return
    except ConfigError as error:
        if "not our ref" not in str(error) and "unadvertised object" not in str(error):
            raise
        refused = error
    if name:
        git.remote(*call, name)
    if not name or git.local("rev-parse", "FETCH_HEAD").decode().strip() != commit:
        problem = f"has no commit {commit} any more, or its server gives none by its digits"
        raise ConfigError([Fault("source", git.url, problem)], "the source") from refused


@contextmanager
def files_of(git: Git, commit: str) -> Iterator[CommitFiles]:
    """List the files of a commit that was fetched; their content is read when it is asked for, in the ``with`` block.

    :raises SourceUnreachable: what was fetched is damaged.
    """
    with git.reader() as read:
        members, submodules = list[Member](), list[str]()
        for entry in git.local("ls-tree", "-r", "-z", "--long", "--full-tree", commit).split(b"\0")[:-1]:
            described, _, path = entry.partition(b"\t")
            mode, _, blob, size = described.decode("ascii").split()
            name = path.decode("utf-8", "surrogateescape")
            if mode == _SUBMODULE:
                submodules.append(name)
                continue
            content = partial(read, blob)
            target = content().decode("utf-8", "replace") if mode == _LINK else None
            members.append(Member(name, 0 if mode == _LINK else int(size), content, mode == _EXECUTABLE, target))
        yield CommitFiles(tuple(members), tuple(submodules))
