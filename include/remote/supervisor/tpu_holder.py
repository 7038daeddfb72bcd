# SPDX-License-Identifier: Apache-2.0
"""Who holds the TPU when the command could not have it: libtpu lets one process use it at a time."""

from __future__ import annotations

import re
from pathlib import Path

import protocol

from machine import processes

# libtpu's words, in every framework: https://github.com/jax-ml/jax/issues/10192
_IN_USE = re.compile(
    rb"(?:TPU is|libtpu\.so) already in use by (?:process with pid (\d+)|another process)|libtpu multi-process lockfile"
)
_TAIL_BYTES = 256 * 1024
_COMMAND_LIMIT = 120


def find_holder(log: Path) -> str:
    """Return which process holds the TPU by the end of a log, once every process of the command has ended.

    :return: pid and command line of a process that is not of this run, :data:`protocol.OWN_PROCESS` if it was one of
        the command's own, ``another process`` if the log does not say; empty if the log says nothing of the kind.
    """
    found = list(_IN_USE.finditer(_tail(log)))
    if not found:
        return ""
    pid = found[-1].group(1)
    if pid is None:
        return "another process"
    holder = processes.read(int(pid))
    if holder is None or not holder.alive:
        return protocol.OWN_PROCESS
    return "%s (%s)" % (pid.decode(), _command_line(int(pid)))


def _tail(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def _command_line(pid: int) -> str:
    """Return what a process was started as, without arguments, which may hold what must not be shown."""
    try:
        words = Path("/proc/%d/cmdline" % pid).read_bytes().split(b"\0")
    except OSError:
        words = []
    shown = [word.decode("utf-8", "replace") for word in words[:2] if word and not word.startswith(b"-")]
    return " ".join(shown)[:_COMMAND_LIMIT] or "a command that this login may not see"
