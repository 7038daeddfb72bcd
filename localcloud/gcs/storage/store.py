# SPDX-License-Identifier: Apache-2.0
"""The database of the storage server: SQLite in WAL mode beside the folder of contents.

Every state change is one transaction under one lock: nothing changes between the check of a precondition and the
change it guards. WAL with ``synchronous=NORMAL`` survives the death of the process (``kill -9``); a power cut may lose
the last transactions, which a stand-in for a cloud may.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localcloud.clock import Clock
from localcloud.gcs.storage.blobs import BlobFolder
from localcloud.gcs.storage.digests import Digest
from localcloud.gcs.storage.session_writer import SessionWriter

_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (
  name TEXT PRIMARY KEY, project TEXT NOT NULL, project_number TEXT NOT NULL, location TEXT NOT NULL,
  metageneration INTEGER NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, config TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS objects (
  bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
  live INTEGER NOT NULL, size INTEGER NOT NULL, md5 TEXT, crc32c TEXT NOT NULL, components INTEGER,
  blob TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, deleted TEXT, meta TEXT NOT NULL,
  PRIMARY KEY (bucket, name, generation));
CREATE TABLE IF NOT EXISTS soft_deleted (
  bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
  live INTEGER NOT NULL, size INTEGER NOT NULL, md5 TEXT, crc32c TEXT NOT NULL, components INTEGER,
  blob TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, deleted TEXT, meta TEXT NOT NULL,
  hard_delete TEXT NOT NULL, PRIMARY KEY (bucket, name, generation));
CREATE INDEX IF NOT EXISTS soft_deleted_until ON soft_deleted (hard_delete);
CREATE UNIQUE INDEX IF NOT EXISTS one_live_generation ON objects (bucket, name) WHERE live = 1;
CREATE TABLE IF NOT EXISTS uploads (
  id TEXT PRIMARY KEY, bucket TEXT NOT NULL, name TEXT NOT NULL, meta TEXT NOT NULL,
  conditions TEXT NOT NULL, declared INTEGER, received INTEGER NOT NULL, blob TEXT, created TEXT NOT NULL,
  generation INTEGER);
CREATE TABLE IF NOT EXISTS last_generation (value INTEGER NOT NULL);
INSERT INTO last_generation SELECT 0 WHERE NOT EXISTS (SELECT * FROM last_generation);
"""


def rfc3339(moment: datetime) -> str:
    """Return an instant in UTC in the form of the JSON interface (milliseconds, Z); such texts sort by time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Store:
    """Database and contents of one storage server.

    :param root: folder that holds both; created if missing.
    :param clock: gives the times and generation numbers.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self.blobs = BlobFolder(root / "blobs")
        self._clock = clock
        #: Running hashes of unfinished upload sessions; one that is missing is computed again from the file.
        self.digests: dict[str, Digest] = {}
        #: Requests that are writing into a session right now, by session.
        self.writers: dict[str, SessionWriter] = {}
        self._discarded: list[str] = []
        self._lock = threading.RLock()
        # Tests and the command line create buckets from other threads than the one that serves.
        self._db = sqlite3.connect(root / "gcs.sqlite", isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        self._remove_unknown_blobs()

    def _remove_unknown_blobs(self) -> None:
        rows = self.query("SELECT blob FROM objects UNION SELECT blob FROM uploads")
        self.blobs.remove_unknown(frozenset(row["blob"] for row in rows if row["blob"]))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside as one transaction, or nothing of it; may be nested."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                self._discarded.clear()
                raise
            self._db.execute("COMMIT")
            self.blobs.remove(*self._discarded)
            self._discarded.clear()

    def discard(self, *blobs: str) -> None:
        """Delete files once the present transaction is committed: a row must never name a missing file."""
        self._discarded.extend(blobs)

    def query(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Run a statement and return its rows."""
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """Run a statement and return its first row, or ``None``."""
        rows = self.query(sql, *values)
        return rows[0] if rows else None

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Insert a row; table and columns come from the code, never from a request."""
        columns, values = ", ".join(row), ", ".join("?" * len(row))
        self.query(f"INSERT INTO {table} ({columns}) VALUES ({values})", *row.values())  # noqa: S608 - the code's own

    def next_generation(self) -> int:
        """Return a generation number: microseconds of the clock, as Google's are, but never twice the same."""
        with self.transaction():
            row = self.query("SELECT value FROM last_generation")[0]
            value = max(int(row["value"]) + 1, int(self.now().timestamp() * 1_000_000))
            self.query("UPDATE last_generation SET value = ?", value)
        return value

    def now(self) -> datetime:
        """Return the time of the clock, in UTC."""
        return self._clock.now().astimezone(UTC)

    def timestamp(self) -> str:
        """Return the time in the form of the JSON interface (RFC 3339, milliseconds, Z)."""
        return rfc3339(self.now())

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()
