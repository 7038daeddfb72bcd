# SPDX-License-Identifier: Apache-2.0
"""What a worker says about a run, as values; the other form is :mod:`airflow_tpu.protocol`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Started:
    """The answer to a start.

    :param created: False if this attempt had been started before, by an earlier try.
    :param pid: of the command, None if it is not known (yet).
    :param start_time: of that process, in clock ticks after boot.
    :param boot_id: of the machine.
    """

    created: bool
    pid: int | None
    start_time: int | None
    boot_id: str | None


@dataclass(frozen=True)
class LogChunk:
    """Bytes of the log.

    :param offset: of the first byte.
    :param data: the bytes as they were written.
    """

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset behind the last byte: where the next chunk starts."""
        return self.offset + len(self.data)


@dataclass(frozen=True)
class Heartbeat:
    """The run continues.

    :param size: bytes of the log now.
    :param progress: what the script wrote to ``progress.json``, None if nothing readable.
    :param mirror: which checkpoint is safe in the bucket, None if none is wanted there; see
        :mod:`airflow_tpu.protocol`.
    """

    size: int
    progress: Mapping[str, Any] | None = None
    mirror: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Finished:
    """The run has ended, and all of its log has been sent.

    :param result: fields of :data:`airflow_tpu.protocol.RESULT_FIELDS`.
    """

    result: Mapping[str, Any]


@dataclass(frozen=True)
class Gone:
    """The run has no result and will never have one.

    :param reason: one of :data:`airflow_tpu.protocol.GONE_REASONS`.
    :param detail: a sentence.
    """

    reason: str
    detail: str = ""


FollowMessage = LogChunk | Heartbeat | Finished | Gone


@dataclass(frozen=True)
class RunStatus:
    """What has become of a run.

    :param state: absent, running, finished or gone.
    :param size: bytes of the log.
    :param delivered: bytes of the log that a follower has acknowledged.
    :param result: as in :class:`Finished`, None unless finished.
    :param progress: as in :class:`Heartbeat`.
    :param reason: as in :class:`Gone`, empty unless gone or absent.
    :param deadline: Unix time at which the worker stops it, None for never.
    """

    state: str
    size: int
    delivered: int
    result: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    reason: str
    deadline: float | None = None


@dataclass(frozen=True)
class Stopped:
    """The answer to a stop.

    :param state: absent, finished or gone; running if it could not be stopped.
    :param result: as in :class:`Finished`, None unless finished.
    :param survivors: pids that are still there: stuck in the kernel, or another user's.
    """

    state: str
    result: Mapping[str, Any] | None
    survivors: tuple[int, ...]


@dataclass(frozen=True)
class PushProgress:
    """A push continues.

    :param done: files finished, in whatever way.
    :param total: files found.
    :param path: the file just finished, empty between two.
    :param size: its size in bytes.
    """

    done: int
    total: int
    path: str = ""
    size: int = 0


@dataclass(frozen=True)
class Pushed:
    """The push is over; the manifest is in the bucket.

    :param uri: of the manifest.
    :param manifest: its content: ``files``, ``links``, ``skipped`` (left out on purpose) and ``failed``, the last
        two with ``path`` and ``reason``.
    """

    uri: str
    manifest: Mapping[str, Any]


PushMessage = PushProgress | Pushed
