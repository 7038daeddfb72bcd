# SPDX-License-Identifier: Apache-2.0
"""The secrets of the docker compose stack, made at its first start by docker/make_secrets.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docker" / "make_secrets.py"


def test_secrets_are_made_once_and_differ_between_stacks(tmp_path: Path) -> None:
    """A second start changes no secret, another stack has others, and none is short."""
    stacks = [make_secrets(tmp_path / "one"), make_secrets(tmp_path / "one"), make_secrets(tmp_path / "two")]
    assert stacks[0] == stacks[1]
    assert {name for name, value in stacks[0].items() if value == stacks[2][name]} == set()
    assert min(len(value) for value in stacks[0].values()) >= 32
    assert stacks[0]["database/password"] in stacks[0]["secrets/sql_alchemy_conn"]
    assert stacks[0]["broker/password"] in stacks[0]["broker/redis.conf"]


def test_given_secrets_are_taken_at_the_first_start(tmp_path: Path) -> None:
    """What .env gives is used, also with characters that mean something in a URL, and kept when .env changes."""
    given = {"UI_PASSWORD": "ui-word", "POSTGRES_PASSWORD": "a/b@c:d", "FERNET_KEY": "the-key"}
    made = make_secrets(tmp_path, **given)
    assert json.loads(made["ui/passwords.json"]) == {"admin": "ui-word"}
    assert made["database/password"] == "a/b@c:d"
    assert "airflow:a%2Fb%40c%3Ad@postgres:5432/airflow" in made["secrets/sql_alchemy_conn"]
    assert made["secrets/fernet_key"] == "the-key"
    assert make_secrets(tmp_path, UI_PASSWORD="another") == made


def test_secrets_are_readable_by_those_who_need_them_only(tmp_path: Path) -> None:
    """Airflow's secrets are for its user and group; PostgreSQL's and Redis' also for the users of their images."""
    make_secrets(tmp_path)
    modes = {path.parent.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("*/*")}
    assert modes == {"secrets": "0o640", "ui": "0o660", "database": "0o644", "broker": "0o644"}


def make_secrets(directory: Path, **given: str) -> dict[str, str]:
    """Every secret that the first service makes, by its path."""
    for name in ("secrets", "ui", "database", "broker"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SCRIPT), str(directory)]
    subprocess.run(command, env=given, check=True)
    return {path.relative_to(directory).as_posix(): path.read_text("utf-8") for path in directory.glob("*/*")}
