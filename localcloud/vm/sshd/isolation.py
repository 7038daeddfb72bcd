# SPDX-License-Identifier: Apache-2.0
"""What the two OpenSSH tiers do differently: how the tree is wrapped, how logins get their home, how the tree ends."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from localcloud.vm.processes import proctable
from localcloud.vm.sshd.supervisor_client import Supervision
from localcloud.vm.worker.files import WorkerFiles
from localcloud.vm.worker.interface import TierUnavailable, WorkerSpec

_LIBRARIES = tuple(Path(place) for place in ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib"))


class Isolation(Protocol):
    """One tier."""

    @property
    def tier(self) -> str:
        """Its name."""

    @property
    def user_namespace(self) -> bool:
        """Whether its workers run in a user namespace."""

    def wrapper(self, spec: WorkerSpec, files: WorkerFiles) -> list[str]:
        """Return the command line to put before the supervisor's."""

    def environment(self, files: WorkerFiles) -> dict[str, str]:
        """Return what the SSH server needs in its environment."""

    def end(self, supervision: Supervision) -> None:
        """Start the death of the tree; the process of ``supervision`` ends when the tree has."""

    def proves(self, status: int) -> bool:
        """Tell whether that process, having ended with ``status``, proves the end of the tree."""


class Bubblewrap:
    """Tier ``bwrap``: a PID namespace per worker.

    The kernel kills the namespace with its first process, which is the supervisor, and lets that process be waited
    for only when all others are gone. Account files and the host name are the worker's own; the file system is
    this machine's, so that its interpreter and packages can be used.

    :param places: directories to look in, separated like those of PATH, which is the default.
    :raises TierUnavailable: when bubblewrap is not installed.
    """

    tier = "bwrap"

    def __init__(self, places: str | None = None) -> None:
        program = shutil.which("bwrap", path=places)
        if program is None:
            raise TierUnavailable("bubblewrap is not installed: apt-get install bubblewrap")
        self._program = program
        self.user_namespace = os.getuid() != 0  # root needs none to make the others

    def wrapper(self, spec: WorkerSpec, files: WorkerFiles) -> list[str]:
        """Return the bwrap command: new PID, UTS and IPC namespaces, own account files over the machine's."""
        namespaces = ["--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        mounts = ["--dev-bind", "/", "/", "--proc", "/proc"]
        for name in ("passwd", "group", "shadow", "nsswitch.conf"):
            target = f"/etc/{name}"
            if os.access(target, os.R_OK):  # only over what is there: bwrap would create it on this machine
                mounts += ["--ro-bind", str(files.etc / name), os.path.realpath(target)]
        return [self._program, *namespaces, "--hostname", spec.hostname, *mounts, "--"]

    def environment(self, files: WorkerFiles) -> dict[str, str]:
        """Return nothing but a PATH: the account files are bound over the machine's."""
        return {"PATH": os.defpath}

    def end(self, supervision: Supervision) -> None:
        """Kill process 1 of the namespace; bwrap itself then ends, after it."""
        outer = supervision.process.pid
        for row in proctable.descendants(outer):
            if row.parent == outer and not row.ended:
                os.kill(row.pid, signal.SIGKILL)
        supervision.hang_up()  # in case that there was no process 1 yet

    def proves(self, status: int) -> bool:
        """Always: bwrap waits for process 1, and the kernel ends that wait only when the others are gone."""
        return True


class Subreaper:
    """Tier ``sshd``: no namespaces, for containers and kernels that refuse them.

    Login names and their home come from libnss_wrapper, loaded into the SSH server only. The supervisor is a
    subreaper: nothing leaves its tree as long as it lives. Not isolated: a worker sees this machine's processes and
    host name, and may kill the supervisor; what it then leaves behind is found by its directory.

    :param places: directories that hold libraries, or hold directories of libraries.
    :raises TierUnavailable: when libnss_wrapper is not installed.
    """

    tier = "sshd"
    user_namespace = False

    def __init__(self, places: Iterable[Path] = _LIBRARIES) -> None:
        library = next(_nss_wrappers(places), None)
        if library is None:
            raise TierUnavailable("libnss_wrapper is not installed: apt-get install libnss-wrapper")
        self._library = library

    def wrapper(self, spec: WorkerSpec, files: WorkerFiles) -> list[str]:
        """Return nothing: the supervisor runs bare."""
        return []

    def environment(self, files: WorkerFiles) -> dict[str, str]:
        """Return the preload and the account files it shall read; sessions do not inherit either."""
        return {
            "PATH": os.defpath,
            "LD_PRELOAD": str(self._library),
            "NSS_WRAPPER_PASSWD": str(files.etc / "passwd"),
            "NSS_WRAPPER_GROUP": str(files.etc / "group"),
            "NSS_WRAPPER_SHADOW": str(files.etc / "shadow"),
        }

    def end(self, supervision: Supervision) -> None:
        """Let the supervisor kill its tree."""
        supervision.hang_up()

    def proves(self, status: int) -> bool:
        """When the supervisor left on its own accord; killed, it was no longer there to adopt orphans."""
        return status == 0


def _nss_wrappers(places: Iterable[Path]) -> Iterator[Path]:
    for directory in places:
        yield from sorted(directory.glob("libnss_wrapper.so*"))
        yield from sorted(directory.glob("*-linux-*/libnss_wrapper.so*"))
