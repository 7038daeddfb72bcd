# SPDX-License-Identifier: Apache-2.0
"""A bundle holds what a script needs and nothing that varies by itself."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from airflow_tpu.core.source import bundle as module
from airflow_tpu.core.source.bundle import Bundle, RunnerArchive
from airflow_tpu.core.source.selection import Source
from airflow_tpu.errors import ConfigError


def members(bundle: Bundle) -> dict[str, tarfile.TarInfo]:
    """The members of a bundle by name."""
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as tar:
        return {member.name: member for member in tar}


def built(top: Path, script: str = "digits.py") -> Bundle:
    """The bundle of a folder that holds one project."""
    return Bundle.build(Source(top, script, top.parent / "home"))


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A folder of scripts."""
    folder = tmp_path / "train"
    (folder / "lib").mkdir(parents=True)
    (folder / "digits.py").write_text("import lib.data\n")
    (folder / "lib" / "data.py").write_text("DATA = 1\n")
    return folder


def test_a_script_travels_with_its_neighbours(train: Path) -> None:
    """Modules beside and below the script are in the bundle, so that it can import them."""
    assert set(members(built(train))) == {"digits.py", "lib/data.py"}


def test_what_is_nobodys_business_stays_behind(train: Path) -> None:
    """Caches, hidden files, keys, links and devices are not in the bundle."""
    (train / "__pycache__").mkdir()
    (train / "__pycache__" / "x.pyc").touch()
    (train / ".git").mkdir()
    (train / ".git" / "config").touch()
    (train / ".env").touch()
    (train / "tls.key").touch()
    (train / "link.py").symlink_to("/etc/passwd")
    os.mkfifo(train / "fifo.py")
    assert set(members(built(train))) == {"digits.py", "lib/data.py"}


KEYS = {
    "sa.json": '{"type": "service_account", "private_key": "x"}',
    "adc.json": '{"client_id": "x", "refresh_token": "x", "type": "authorized_user"}',
    "impersonation.json": '{"source_credentials": {}, "type": "impersonated_service_account"}',
    "aws": "[default]\naws_secret_access_key = x\n",
    "token.txt": "hf_" + 34 * "x" + "\n",
    "token": "github_pat_" + 40 * "x",
    "oauth.json": '{"installed": {"client_secret": "x"}}',
    "notes.txt": "-----BEGIN RSA PRIVATE KEY-----\n",
    "mine.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    "work": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    **dict.fromkeys(
        ["tls.pem", "wandb.p12", "WIN.PFX", "putty.ppk", "java.jks", "netrc", "id_ed25519", "id_work"], "x"
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_stay_behind_by_name(train: Path, name: str) -> None:
    """Keys and password files, known by name or content, are not sent, and the bundle says which they were."""
    (train / "lib" / name).write_text(KEYS[name])
    bundle = built(train)
    assert set(members(bundle)) == {"digits.py", "lib/data.py"}
    assert bundle.left_behind == (f"lib/{name}",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"type": "adam", "private": true}'),
        ("id_to_label.json", "{}"),
        ("keys.py", 'HEADER = "-----BEGIN PRIVATE KEY-----"\n'),
        ("settings.yaml", "rate: 0.1\ntoken: hf_" + 34 * "x"),
        ("vocabulary.txt", "key password secret\n" * 10_000),
    ],
)
def test_what_only_speaks_of_keys_travels(train: Path, name: str, content: str) -> None:
    """Settings, labels and modules are sent, since a script without them fails."""
    (train / name).write_text(content)
    bundle = built(train)
    assert name in members(bundle)
    assert bundle.left_behind == ()


def test_the_same_files_give_the_same_bytes(train: Path, tmp_path: Path) -> None:
    """Times, owners and the order of the directory do not show in the digest; contents and names do."""
    first = built(train)
    copy = tmp_path / "copy"
    (copy / "lib").mkdir(parents=True)
    for name in ("lib/data.py", "digits.py"):
        (copy / name).write_bytes((train / name).read_bytes())
        os.utime(copy / name, (1, 1))
    assert built(copy).sha256 == first.sha256
    (copy / "digits.py").write_text("pass\n")
    assert built(copy).sha256 != first.sha256


def test_a_script_that_runs_by_itself_is_executable(tmp_path: Path) -> None:
    """A script without a known ending can be executed on the worker, whatever its mode was here."""
    (tmp_path / "train").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "notes.txt").touch(mode=0o600)
    modes = {name: member.mode for name, member in members(built(tmp_path, "train")).items()}
    assert modes == {"train": 0o755, "notes.txt": 0o644}


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    """A script and a requirements file that are not there give one error with two faults."""
    with pytest.raises(ConfigError) as caught:
        Bundle.build(Source(tmp_path, "a.py", tmp_path, requirements="r.txt"))
    assert [fault.field for fault in caught.value.faults] == ["script", "requirements"]


def test_data_beside_the_script_is_too_much(train: Path) -> None:
    """A big file in the folder is refused with its name and size: data belongs into a bucket."""
    with (train / "images.npz").open("wb") as file:
        file.truncate(module.SIZE_LIMIT + 1)
    with pytest.raises(ConfigError, match=r"images\.npz \(33,554,433 bytes\)"):
        built(train)


def test_the_runner_needs_its_entry_point(tmp_path: Path) -> None:
    """A directory without runner.py is not packed."""
    with pytest.raises(FileNotFoundError):
        RunnerArchive.build(tmp_path)
