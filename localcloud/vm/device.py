# SPDX-License-Identifier: Apache-2.0
"""The TPU of a VM as a device that one process holds: ``with-tpu COMMAND`` runs a command that uses it.

There is no TPU, so nothing but this program holds the device; a second process gets the text of Google's libtpu
(https://github.com/jax-ml/jax/issues/10192) and fails, as every framework does then. Found in the PATH of every
session; run by path, so it needs nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from pathlib import Path

PROGRAM = "with-tpu"
_DEVICE = ".accel0"  # in the home, which each VM has to itself
_IN_USE = (
    "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid {}. Not "
    "attempting to load libtpu.so in this process.\n"
)


def install(directory: Path) -> None:
    """Write the program.

    :param directory: is in the PATH.
    """
    path = directory / PROGRAM
    path.write_text(f'#!/bin/sh\nexec {shlex.join((sys.executable, "-I", __file__))} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def main(command: list[str]) -> int:
    """Become the command while holding the device; what it starts holds the device too, until the last has ended."""
    device = os.open(Path.home() / _DEVICE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(_IN_USE.format(os.pread(device, 20, 0).decode().strip()))
        return 1
    os.ftruncate(device, 0)
    os.pwrite(device, str(os.getpid()).encode(), 0)
    os.set_inheritable(device, True)
    os.execvp(command[0], command)  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
