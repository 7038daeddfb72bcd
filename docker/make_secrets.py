# SPDX-License-Identifier: Apache-2.0
"""Make every secret of the stack at its first start; later starts find them and change nothing.

Usage: ``make_secrets.py DIRECTORY``. ``secrets`` below it is for Airflow's processes, ``ui`` for the api-server,
``database`` and ``broker`` for PostgreSQL and Redis: each of them mounts only its own. A value that the environment
gives (``FERNET_KEY``, ``POSTGRES_PASSWORD``, ``UI_PASSWORD``) is taken instead of a new one, so that a database can
move to another machine.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from pathlib import Path
from urllib.parse import quote

UI_USER = "admin"
# Airflow's processes share group 0; PostgreSQL and Redis have users and groups of their own, and mount nothing else.
OURS, THEIRS, REWRITTEN = 0o640, 0o644, 0o660


def main(directory: str) -> None:
    """Write what is missing."""
    root = Path(directory)
    database = keep(root / "database" / "password", given("POSTGRES_PASSWORD"), THEIRS)
    broker = keep(root / "broker" / "password", token(), THEIRS)
    keep(root / "broker" / "redis.conf", redis_conf(broker), THEIRS)
    address = f"airflow:{quote(database, safe='')}@postgres:5432/airflow"
    values = {
        "sql_alchemy_conn": f"postgresql+psycopg2://{address}",
        "result_backend": f"db+postgresql://{address}",
        "broker_url": f"redis://:{broker}@redis:6379/0",
        "fernet_key": os.environ.get("FERNET_KEY") or base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "jwt_secret": token(),
        "session_secret": token(),
    }
    for name, value in values.items():
        keep(root / "secrets" / name, value, OURS)
    # The api-server opens this file for writing, though it only reads it.
    keep(root / "ui" / "passwords.json", json.dumps({UI_USER: given("UI_PASSWORD")}), REWRITTEN)


def given(name: str) -> str:
    """Return the value that the environment gives, or a new secret."""
    return os.environ.get(name) or token()


def token() -> str:
    """A new secret of 192 bits, safe in URLs and configuration files."""
    return secrets.token_urlsafe(24)


def redis_conf(password: str) -> str:
    """Return the configuration: the queue outlives a restart; the password is required, and on no command line."""
    return f"requirepass {password}\ndir /data\nappendonly yes\n"


def keep(path: Path, value: str, mode: int) -> str:
    """The text of a file, written now if there is none; whole or not at all."""
    if not path.exists():
        draft = path.with_name(f".{path.name}")
        draft.write_text(value, encoding="utf-8")
        draft.chmod(mode)
        draft.replace(path)
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
