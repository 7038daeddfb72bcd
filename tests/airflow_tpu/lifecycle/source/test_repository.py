# SPDX-License-Identifier: Apache-2.0
"""A project in git, from a real server: which commit, which files, which login, and what is said when there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_tpu.clients.repository.git import GitLogin
from airflow_tpu.core.request.references.source_address import GitAddress, source_address
from airflow_tpu.errors import ConfigError, SourceUnreachable
from airflow_tpu.lifecycle.source.repository import Repository
from airflow_tpu.stores.sources import SourceStore
from tests.airflow_tpu.cloud_env import KEY, ROOT, CloudEnv
from tests.airflow_tpu.git_server import GitServer, commit, git, git_server

pytestmark = pytest.mark.slow

TOKEN = "t0ken-of-the-server"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A server with a repository ``org/repo`` of two commits, the first with the tag ``v1``."""
    repository = tmp_path / "served" / "org" / "repo"
    commit(repository, {"train.py": "print(1)\n", "sub/a.py": "A = 1\n", ".hidden": "x"})
    git(repository, "tag", "-a", "v1", "-m", "first")
    commit(repository, {"train.py": "print(2)\n"})
    git(repository, "branch", "feature/wide")
    with git_server(tmp_path / "served") as found:
        yield found


@pytest.fixture
def sources(env: CloudEnv) -> SourceStore:
    """Where runs remember their commit."""
    return SourceStore(env.storage, ROOT)


def repository(server: GitServer, rest: str = "", login: GitLogin | None = None) -> Repository:
    """The served repository at a branch, tag or commit."""
    address = source_address(f"{server.url}/org/repo{rest}")
    assert isinstance(address, GitAddress)
    return Repository(address, login)


def written(sources: SourceStore, found: Repository, target: Path) -> dict[str, str]:
    """Files of the commit of a run."""
    target.mkdir()
    found.write(found.pin(sources, KEY), target)
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


def test_files_of_a_branch_a_tag_and_a_commit(server: GitServer, sources: SourceStore, tmp_path: Path) -> None:
    """Each is one commit; its files are there, nothing of git is."""
    first = git(tmp_path / "served/org/repo", "rev-parse", "v1^{commit}")
    for rest, content in (
        ("", "print(2)\n"),
        ("@feature/wide", "print(2)\n"),
        ("@v1", "print(1)\n"),
        (f"@{first}", "print(1)\n"),
    ):
        found = repository(server, rest)
        files = written(sources, found, tmp_path / f"to{len(rest)}")
        assert files == {"train.py": content, "sub/a.py": "A = 1\n", ".hidden": "x"}, rest
    assert found.pin(sources, KEY).commit == first
    assert written(sources, repository(server, "#subdirectory=sub"), tmp_path / "below") == {"a.py": "A = 1\n"}


def test_a_run_keeps_its_commit_when_the_branch_moves(server: GitServer, sources: SourceStore, tmp_path: Path) -> None:
    """Every later task trains what the first has seen, with forced pushes too; another address is looked up anew."""
    served = tmp_path / "served/org/repo"
    before = repository(server, "@main").pin(sources, KEY)
    git(served, "commit", "-q", "--amend", "-m", "rewritten", "--allow-empty")
    commit(served, {"train.py": "print(3)\n"})
    assert repository(server, "@main").pin(sources, KEY) == before
    assert written(sources, repository(server, "@main"), tmp_path / "to")["train.py"] == "print(2)\n"
    assert repository(server).pin(sources, KEY).commit == git(served, "rev-parse", "HEAD")


def test_what_is_not_there_is_named_with_what_is_near(server: GitServer, sources: SourceStore, tmp_path: Path) -> None:
    """A branch, an abbreviated commit, a folder, a repository, a commit that the server has not."""
    for rest, words in (
        ("@feature/wild", "has no branch, tag or commit 'feature/wild'; .*nearest: feature/wide"),
        ("@abcdef1", "give all 40 digits"),
        ("#subdirectory=sbu", "has no folder 'sbu'; .*nearest: sub"),
        ("sitory", "no such repository, or it is private"),
        (f"@{'0' * 39}1", "has no commit 0000"),
    ):
        with pytest.raises(ConfigError, match=words):
            written(sources, repository(server, rest), tmp_path / f"to{rest.replace('/', '')}")


def test_a_login_goes_to_its_server_only(server: GitServer, sources: SourceStore, tmp_path: Path) -> None:
    """Without it, or with a wrong one, the field is named; a redirect to another server does not get it."""
    server.logins = (f"me:{TOKEN}",)
    with pytest.raises(ConfigError, match="source_conn_id"):
        repository(server).pin(sources, KEY)
    with pytest.raises(ConfigError, match="refuses the login") as wrong:
        repository(server, "", GitLogin("me", "wr0ng-token")).pin(sources, KEY)
    assert "wr0ng" not in str(wrong.value)
    assert TOKEN not in repr(GitLogin("me", TOKEN))
    files = written(sources, repository(server, "", GitLogin("me", TOKEN)), tmp_path / "to")
    assert files["train.py"] == "print(2)\n"
    with git_server(tmp_path / "served") as other:
        server.redirect = other.url
        with pytest.raises(ConfigError, match="leads to another address"):
            repository(server, "@v1", GitLogin("me", TOKEN)).pin(sources, KEY)
        assert other.requests == []


def test_a_server_that_fails_in_passing_is_asked_again(server: GitServer, sources: SourceStore) -> None:
    """An error of the server and a closed port are no fault of the form."""
    server.statuses = [503]
    with pytest.raises(SourceUnreachable, match="next try"):
        repository(server).pin(sources, KEY)
    assert repository(server).pin(sources, KEY).commit
    closed = GitAddress("http://127.0.0.1:9/org/repo")
    with pytest.raises(SourceUnreachable):
        Repository(closed).pin(sources, KEY)


def test_nothing_of_the_machine_or_the_repository_runs(
    server: GitServer, sources: SourceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the configuration of the user, nor a filter, hook, link or submodule of the repository takes effect."""
    served, home = tmp_path / "served/org/repo", tmp_path / "home"
    home.mkdir()
    marker = tmp_path / "ran"
    (home / ".gitconfig").write_text(
        f'[filter "evil"]\n smudge = touch {marker}\n[credential]\n helper = "!touch {marker}"\n'
        f"[core]\n fsmonitor = touch {marker}\n hooksPath = {home}\n"
    )
    (home / "post-checkout").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (home / "post-checkout").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    os.symlink("/etc/passwd", served / "passwd")
    os.symlink("sub/a.py", served / "alias.py")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    commit(served, {".gitattributes": "* filter=evil\n", "weights.bin": pointer})
    git(served, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor")
    git(served, "commit", "-qm", "with a submodule")
    found = repository(server)
    (tmp_path / "to").mkdir()
    left, submodules = found.write(found.pin(sources, KEY), tmp_path / "to")
    assert (left.links, left.pointers, submodules) == (("passwd",), ("weights.bin",), ("vendor",))
    assert (tmp_path / "to" / "alias.py").read_text() == "A = 1\n"
    assert not (tmp_path / "to" / "alias.py").is_symlink()
    assert not marker.exists()


def test_git_is_missed_by_name(server: GitServer, sources: SourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without git says so, before anything is created."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match="git is not installed on this Airflow worker"):
        repository(server).pin(sources, KEY)


def test_plain_http_is_for_near_servers_only() -> None:
    """Code that anybody on the way may change is not trained on."""
    with pytest.raises(ConfigError, match=r"without TLS.*nearest: https://example\.org/org/repo"):
        Repository(GitAddress("http://example.org/org/repo"))
