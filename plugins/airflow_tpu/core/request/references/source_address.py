# SPDX-License-Identifier: Apache-2.0
"""Where a project comes from: a folder below ``include/train``, an archive in a bucket, or a git repository.

The forms are those that people know: ``https://github.com/org/repo@v1.2#subdirectory=examples`` is read as pip reads it
(https://pip.pypa.io/en/stable/topics/vcs-support/), with or without ``git+`` in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_tpu.core.request.fields import Invalid, plain
from airflow_tpu.core.request.paths import folder, gcs_uri

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUBFOLDER = "#subdirectory="
_ARCHIVE_URL = re.compile(
    r"(?P<repository>/[^/]+/[^/]+)/archive/(?:refs/(?:tags|heads)/)?(?P<ref>.+?)\.(?:zip|tar\.gz)"
)
_BROWSER_URL = re.compile(
    r"(?P<repository>(?:/[^/]+){2,}?)/(?:-/)?(?:tree|blob|commit|src)/(?P<ref>[^/]+)/?(?P<path>.*)"
)
_LOGIN = re.compile(r"(?:ssh://)?[\w.-]+@(?P<host>[\w.-]+)[:/](?P<path>[\w./~-]+)")
_BARE_HOST = re.compile(r"(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|huggingface\.co)/.+")
# https://git-scm.com/docs/git-check-ref-format; a dash at its start would be an option of git.
_BAD_REF = re.compile(r"^-|^/|/$|//|\.\.|@\{|\.lock$|\.$|[\x00-\x20\x7f~^:?*\[\\]")


@dataclass(frozen=True)
class FolderAddress:
    """A folder below ``include/train``.

    :param path: relative to it.
    """

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class ArchiveAddress:
    """A packed folder in a bucket.

    :param uri: of the object.
    :param folder: part of it that is the project, empty for all.
    """

    uri: str
    folder: str = ""

    def __str__(self) -> str:
        return self.uri + (f"{_SUBFOLDER}{self.folder}" if self.folder else "")


@dataclass(frozen=True)
class GitAddress:
    """A git repository.

    :param url: ``https://host/path``, without a login.
    :param ref: branch, tag, full name of a reference or commit; empty for the default branch.
    :param folder: part of it that is the project, empty for all.
    """

    url: str
    ref: str = ""
    folder: str = ""

    @property
    def commit(self) -> str:
        """The commit that the address itself names, empty if it names a branch, a tag or nothing."""
        return self.ref if _COMMIT.fullmatch(self.ref) else ""

    @property
    def host(self) -> str:
        """Host and port of the server."""
        return urlsplit(self.url).netloc

    def at(self, ref: str) -> GitAddress:
        """The same repository at another branch, tag or commit; an empty one changes nothing."""
        return replace(self, ref=ref) if ref else self

    def __str__(self) -> str:
        at = f"@{self.ref}" if self.ref else ""
        return self.url + at + (f"{_SUBFOLDER}{self.folder}" if self.folder else "")


Address = FolderAddress | ArchiveAddress | GitAddress


def source_address(value: Any) -> Address:
    """Read what stands in the field *Project*.

    :raises Invalid: it is none of the three, or holds a login.
    """
    text = plain(value)
    bare = text.removeprefix("git+")
    if bare.startswith("gs://"):
        return _archive(bare)
    if re.match(r"https?://", bare, re.IGNORECASE):
        return _repository(bare)
    return _folder(text)


def reference(value: Any) -> str:
    """The name of a branch, a tag or a commit.

    :raises Invalid: git takes no such name.
    """
    name = plain(value)
    if not name or _BAD_REF.search(name):
        raise Invalid("is no name of a branch, a tag or a commit")
    return name.lower() if _COMMIT.fullmatch(name.lower()) else name


def _folder(text: str) -> FolderAddress:
    login = _LOGIN.fullmatch(text)
    if login:
        path = login["path"].lstrip("/")
        raise Invalid(
            "is reached with an SSH key; a repository is fetched over https", nearest=f"https://{login['host']}/{path}"
        )
    if _BARE_HOST.fullmatch(text):
        raise Invalid("has no scheme", nearest=f"https://{text}")
    if "://" in text:
        raise Invalid("is neither a folder nor an address that is read", ("a folder", "gs://", "https://"))
    return FolderAddress(folder(text))


def _archive(text: str) -> ArchiveAddress:
    uri, sub = _split_subfolder(text)
    if not uri.lower().endswith(ARCHIVES):
        raise Invalid(f"is no archive: its name ends in none of {', '.join(ARCHIVES)}")
    return ArchiveAddress(gcs_uri(uri), sub)


def _repository(text: str) -> GitAddress:
    if urlsplit(text).username is not None and "@" in urlsplit(text).netloc:
        raise Invalid("holds a login; name an Airflow connection in source_conn_id instead", secret=True)
    address, sub = _split_subfolder(text)
    scheme, _, rest = address.partition("://")
    host, _, path = rest.partition("/")
    path, at, ref = f"/{path}".partition("@")
    _check_path(scheme, host, path)
    if at:
        ref = reference(ref)
    url = f"{scheme.lower()}://{host.lower()}{path.rstrip('/')}"
    return GitAddress(url, ref, sub)


def _check_path(scheme: str, host: str, path: str) -> None:
    for pattern in (_ARCHIVE_URL, _BROWSER_URL):
        found = pattern.fullmatch(path)
        if found:
            below = found.groupdict().get("path") or ""
            at = GitAddress(f"{scheme}://{host}{found['repository']}", found["ref"], below)
            raise Invalid("is a page or a download of the repository, not its address", nearest=str(at))
    if "?" in path or not host or not path.strip("/"):
        raise Invalid("is no address of a repository", nearest="https://github.com/org/repo@v1.2")
    if re.search(r"[\x00-\x20\x7f\\\"'`$<>|;]", unquote(host + path)) or ".." in path.split("/"):
        raise Invalid("has characters that no address of a repository has")


def _split_subfolder(text: str) -> tuple[str, str]:
    address, hash_sign, fragment = text.partition("#")
    if not hash_sign:
        return address, ""
    if not fragment.startswith("subdirectory="):
        name, _, below = fragment.partition(":")
        nearest = f"{address}@{name}" if name and "@" not in address and "=" not in name else address
        raise Invalid(
            "has a part after '#' that is not subdirectory=FOLDER",
            nearest=nearest + (f"{_SUBFOLDER}{below}" if below else ""),
        )
    return address, folder(fragment.removeprefix("subdirectory="))
