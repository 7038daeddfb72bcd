# SPDX-License-Identifier: Apache-2.0
"""OpenSSH's server: where it is, which version, and the configuration of one worker."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localcloud.vm.worker.files import WorkerFiles
from localcloud.vm.worker.interface import TierUnavailable

_PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
"""Where to look: the sbin directories are rarely on a user's PATH."""

_VERSION = re.compile(rb"OpenSSH_(\d+)\.(\d+)")
_CHROOT = Path("/run/sshd")
"""Empty directory into which Debian's sshd locks its first stage; made by an init script that containers never run."""


@dataclass(frozen=True)
class OpenSSH:
    """An installed server.

    :param path: absolute, because sshd re-executes itself.
    :param version: (major, minor).
    """

    path: str
    version: tuple[int, int]


async def find_openssh(places: str = _PLACES) -> OpenSSH:
    """Find sshd and ask its version.

    :param places: directories, separated like those of PATH.
    :raises TierUnavailable: when it is not installed.
    """
    path = shutil.which("sshd", path=places)
    if path is None:
        raise TierUnavailable("openssh-server is not installed: apt-get install openssh-server")
    # Before 9.6 there is no -V: the complaint about it carries the version as well.
    process = await asyncio.create_subprocess_exec(
        path, "-V", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    found = _VERSION.search(output)
    if found is None:
        raise TierUnavailable(f"{path} is not OpenSSH: {output[:200]!r}")
    _prepare_chroot()
    return OpenSSH(path, (int(found[1]), int(found[2])))


def _prepare_chroot() -> None:
    if os.getuid() == 0:
        _CHROOT.mkdir(mode=0o755, parents=True, exist_ok=True)


def command(server: OpenSSH, files: WorkerFiles) -> list[str]:
    """Return the command line that runs the server in the foreground."""
    return [server.path, "-D", "-f", str(files.etc / "sshd_config"), "-E", str(files.log)]


def write_config(server: OpenSSH, files: WorkerFiles, listen: tuple[str, int], environment: Mapping[str, str]) -> None:
    """Write the worker's ``sshd_config``.

    :param listen: (address, port).
    :param environment: variables of every session.
    """
    directory = str(files.directory).replace("%", "%%")
    lines = [
        f"ListenAddress {listen[0]}:{listen[1]}",
        f'HostKey "{files.host_key_file}"',
        f'AuthorizedKeysFile "{directory}/keys/%u"',
        "PidFile none",
        "UsePAM no",
        "StrictModes no",  # the home lies below a directory that others may write, like /tmp
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "PermitUserRC no",
        "PrintMotd no",
        "PrintLastLog no",
        "UseDNS no",
        "X11Forwarding no",
        "MaxStartups 1000:30:2000",
        "MaxSessions 1000",
        "MaxAuthTries 100",
        "LogLevel VERBOSE",
        "Subsystem sftp internal-sftp",
    ]
    if server.version >= (9, 8):
        # On by default since 9.8: after a few refused logins it would shut out 127.0.0.1, which all clients share.
        lines.append("PerSourcePenalties no")
    if environment:
        # One line, for sshd takes the first SetEnv only.
        lines.append("SetEnv " + " ".join(_assignment(name, value) for name, value in environment.items()))
    (files.etc / "sshd_config").write_text("\n".join(lines) + "\n")


def _assignment(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}={escaped}"'
