# SPDX-License-Identifier: Apache-2.0
"""Names and labels derived from a DAG run, so that any task, try or reaper finds the TPU without XCom.

A name is a readable slug plus a hash of the *whole* key: truncating long ids alone removed the part that made
them unique (apache/airflow issue 13189).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

NAME_LIMIT = 45
NODE_ID_LIMIT = 63
LABEL_LIMIT = 63
DIGEST_LENGTH = 10

LABEL_MANAGED_BY = "managed-by"
LABEL_DAG = "airflow-dag"
LABEL_RUN_ID = "airflow-run"
LABEL_MAP_INDEX = "airflow-map-index"
LABEL_SESSION = "airflow-session"
LABEL_DAG_RUN = "airflow-tpu-dag-run"
LABEL_RUN = "airflow-tpu-run"
LABEL_IDENTITY = "airflow-tpu-identity"
LABEL_STORE = "airflow-tpu-store"
LABEL_TOKEN = "airflow-tpu-token"  # noqa: S105 - the name of a label, not a secret
LABEL_EXPIRES = "airflow-tpu-expires"
LABEL_INCARNATION = "airflow-tpu-incarnation"
MANAGED_BY = "airflow-tpu"

_SLUG_LIMIT = NAME_LIMIT - DIGEST_LENGTH - 1
_NAME_END = re.compile(rf"-[0-9a-f]{{{DIGEST_LENGTH}}}\Z")
_TOKEN = re.compile(r"[a-z0-9_-]{1,63}")
_EPOCH = re.compile(r"[0-9]{1,11}")  # 11 digits end in the year 5138: always a valid datetime


@dataclass(frozen=True)
class RunKey:
    """What identifies one session of a DAG run: the TPU that its tasks share.

    :param airflow: identity of the Airflow whose run it is (:mod:`airflow_tpu.core.tpu.identity`): two Airflows give
        DAG runs the same ids.
    :param dag_id: the DAG's id, any text Airflow accepts (up to 250 characters).
    :param run_id: the DAG run's id.
    :param map_index: index of the mapped task group that the session is in, -1 when it is in none.
    :param session: name of the session, empty for the one without a name: a DAG may have several.
    """

    airflow: str
    dag_id: str
    run_id: str
    map_index: int = -1
    session: str = ""

    @cached_property
    def digest(self) -> str:
        """Ten hex digits of the SHA-256 of the whole key: 40 bits, one clash in about a million runs."""
        return _digest(self.airflow, self.dag_id, self.run_id, self.map_index, self.session)

    @cached_property
    def dag_run(self) -> str:
        """Ten hex digits that all sessions of the DAG run share, and those of no other."""
        return _digest(self.airflow, self.dag_id, self.run_id)

    @property
    def is_whole(self) -> bool:
        """Whether it names no session and no index, as the key of a task beside all sessions does."""
        return not self.session and self.map_index < 0

    @cached_property
    def name(self) -> str:
        """Name of the run: at most 45 characters of ``[a-z][a-z0-9-]*``, never ending in a hyphen."""
        slug = self.family
        if self.session:
            slug = f"{slug}-{slugify(self.session, NAME_LIMIT)}"[:_SLUG_LIMIT].strip("-")
        return f"{slug}-{self.digest}"

    @property
    def in_airflow(self) -> str:
        """The session as Airflow shows it: DAG id, run id, its name and its index where it has them."""
        index = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return " ".join([self.dag_id, self.run_id, *([f"{self.session}{index}"] if self.session or index else [])])

    @cached_property
    def family(self) -> str:
        """How the names of all sessions of the DAG begin; names of another DAG may begin so too."""
        return slugify(self.dag_id, _SLUG_LIMIT)

    def has_sibling(self, name: str) -> bool:
        """Whether a text is a name that a session of this DAG may have: it begins as they do and ends in a digest."""
        return name.startswith(f"{self.family}-") and _NAME_END.search(name) is not None

    def node_id(self, incarnation: int) -> str:
        """Id of the node (and of its queued resource) in one incarnation of the run.

        :param incarnation: 1 for the first TPU of the run, one more after each preemption.
        :raises ValueError: if the number is negative or the id would pass Google's 63 characters.
        """
        node_id = f"{self.name}-{incarnation}"
        if incarnation < 0 or len(node_id) > NODE_ID_LIMIT:
            raise ValueError(f"no node id for incarnation {incarnation} of {self.name}")
        return node_id


@dataclass(frozen=True)
class LeaseStamp:
    """Token and expiry on a TPU: until it expires only the holder of the token deletes it, then the reaper does.

    :param token: token of the attempt that created the TPU, ``[a-z0-9_-]``, 1 to 63 characters.
    :param expires_at: aware instant after which the reaper deletes the TPU.
    :param incarnation: number of the incarnation.
    :param root: ``gs://bucket/prefix`` below which the lease is, empty if that is not said.
    :raises ValueError: if the token is no label value or the instant is naive.
    """

    token: str
    expires_at: datetime
    incarnation: int
    root: str = ""

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(f"token {self.token!r} is not 1 to 63 characters of [a-z0-9_-]")
        if self.expires_at.tzinfo is None:
            raise ValueError("expires_at needs a timezone")


def slugify(text: str, limit: int, empty: str = "run") -> str:
    """Lower-case letters, digits and single hyphens, first a letter, last no hyphen, at most ``limit`` long."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not slug[:1].isalpha():
        slug = f"{empty}-{slug}"
    return slug[:limit].strip("-")


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:DIGEST_LENGTH]


def labels(key: RunKey, lease: LeaseStamp) -> dict[str, str]:
    """Labels of a TPU of this run, all within Google's rules (63 characters of ``[a-z0-9_-]``)."""
    found = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_DAG: slugify(key.dag_id, LABEL_LIMIT, "dag"),
        LABEL_RUN_ID: slugify(key.run_id, LABEL_LIMIT),
        LABEL_RUN: key.digest,
        LABEL_DAG_RUN: key.dag_run,
        LABEL_IDENTITY: key.airflow,
        LABEL_TOKEN: lease.token,
        LABEL_EXPIRES: str(int(lease.expires_at.timestamp())),
        LABEL_INCARNATION: str(lease.incarnation),
    }
    if lease.root:
        found[LABEL_STORE] = store_mark(lease.root)
    if key.map_index >= 0:
        found[LABEL_MAP_INDEX] = str(key.map_index)
    if key.session:
        found[LABEL_SESSION] = slugify(key.session, LABEL_LIMIT, "session")
    return found


def store_mark(root: str) -> str:
    """What stands on a TPU for the bucket and the prefix that its lease is in: a label holds no URI."""
    return hashlib.sha256(root.encode()).hexdigest()[:DIGEST_LENGTH]


def store_of(found: Mapping[str, str]) -> str | None:
    """The mark of the place of the TPU's lease, None if there is none."""
    return found.get(LABEL_STORE) if is_managed(found) else None


def is_managed(found: Mapping[str, str]) -> bool:
    """Whether this package made the TPU, for a run of any Airflow."""
    return found.get(LABEL_MANAGED_BY) == MANAGED_BY


def airflow_of(found: Mapping[str, str]) -> str | None:
    """Identity of the Airflow that owns the TPU, None if this package did not make it or the label is missing."""
    return found.get(LABEL_IDENTITY) if is_managed(found) else None


def is_ours(found: Mapping[str, str], key: RunKey) -> bool:
    """Whether the TPU belongs to this very run; a colleague's node with our prefix does not."""
    return run_of(found) == key.digest and airflow_of(found) == key.airflow


def run_of(found: Mapping[str, str]) -> str | None:
    """Digest of the run that owns the TPU, None if this package did not make it."""
    return found.get(LABEL_RUN) if is_managed(found) else None


def is_of_dag_run(found: Mapping[str, str], key: RunKey) -> bool:
    """Whether the TPU belongs to any session of a DAG run."""
    return is_managed(found) and found.get(LABEL_DAG_RUN) == key.dag_run and airflow_of(found) == key.airflow


def token_of(found: Mapping[str, str]) -> str | None:
    """Token of the attempt that created the TPU, None if this package did not make it."""
    return found.get(LABEL_TOKEN) if is_managed(found) else None


def expires_of(found: Mapping[str, str]) -> datetime | None:
    """When the TPU's lease ends, None if it has none or the label is unreadable."""
    epoch = found.get(LABEL_EXPIRES, "")
    if not is_managed(found) or not _EPOCH.fullmatch(epoch):
        return None
    return datetime.fromtimestamp(int(epoch), tz=UTC)


def incarnation_of(found: Mapping[str, str]) -> int | None:
    """Number of the incarnation, None if this package did not make the TPU or the label is unreadable."""
    number = found.get(LABEL_INCARNATION, "")
    return int(number) if is_managed(found) and _EPOCH.fullmatch(number) else None
