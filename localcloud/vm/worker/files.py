# SPDX-License-Identifier: Apache-2.0
"""The files of one worker: home, accounts, authorized keys, host key, server configuration and log."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from localcloud.vm.worker.host_key import write_host_key
from localcloud.vm.worker.interface import SSHKey, VMError, WorkerSpec

PRIVSEP_USER = "sshd"
"""Account into which a root sshd drops its first stage; the name is compiled in."""

_LOGIN = re.compile(r"[^\s:/\x00-\x1f.-][^\s:/\x00-\x1f]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOBODY = 65534
_TTY = "tty"


class WorkerFiles:
    """Lays out ``spec.directory`` and keeps its files up to date.

    All logins share the account of the local cloud's own process (its uid and gid), whatever their name: files stay
    removable without root, and the worker can read the interpreter that runs the local cloud.

    :param spec: the worker.
    :param user_namespace: whether it runs in a user namespace, in which group ids look different.
    :raises VMError: when the directory cannot be named in ``passwd``, a login name is not one, or a variable of the
        environment cannot be handed to a session.
    """

    def __init__(self, spec: WorkerSpec, user_namespace: bool = False) -> None:
        self.directory = spec.directory.absolute()
        if re.search(r'[:"\\\n]', str(self.directory)):
            raise VMError(f"a worker's directory must not contain ':', '\"', '\\' or a newline: {self.directory}")
        _check_environment(spec.environment)
        self.home = self.directory / "home"
        self.etc = self.directory / "etc"
        self.keys = self.directory / "keys"
        self.log = self.directory / "sshd.log"
        self.host_key = ""
        for path in (self.home, self.etc, self.keys):
            path.mkdir(parents=True, exist_ok=True)
        self._write("nsswitch.conf", _nsswitch())
        self._write("group", _groups(_terminal_group(user_namespace)))
        self.set_keys(spec.keys)
        self.new_host_key()

    @property
    def host_key_file(self) -> Path:
        """Private host key."""
        return self.directory / "host_key"

    def new_host_key(self) -> None:
        """Replace the host key; the server reads it at its next start."""
        self.host_key = write_host_key(self.host_key_file)

    def set_keys(self, keys: Iterable[SSHKey]) -> None:
        """Replace the authorized keys, and make their users the login names."""
        lines: dict[str, list[str]] = {}
        for key in keys:
            if not _LOGIN.fullmatch(key.user):
                raise VMError(f"ssh-keys: {key.user!r} is not a login name")
            lines.setdefault(key.user, []).append(key.public_key.strip() + "\n")
        self._write("passwd", _accounts(lines, self.home))
        self._write("shadow", "".join(f"{user}:*:19000:0:99999:7:::\n" for user in lines))
        for stale in self.keys.iterdir():
            if stale.name not in lines:
                stale.unlink()
        for user, text in lines.items():
            (self.keys / user).write_text("".join(text))

    def startup_command(self, spec: WorkerSpec) -> list[str]:
        """Write the startup script and return the command that runs it, empty if there is none.

        Google's guest agent runs it as root at each boot, without the environment of a login. Here it gets that all the
        same: where the local cloud's endpoints are stands nowhere else.
        """
        if not spec.startup_script:
            return []
        path = self.directory / "startup-script"
        path.write_text(spec.startup_script)
        path.chmod(0o755)
        variables = [f"{name}={value}" for name, value in {**spec.environment, "HOME": str(self.home)}.items()]
        return ["/usr/bin/env", "-i", *variables, str(path)]

    def log_tail(self, count: int = 10) -> str:
        """Return the last lines of the server's log, for error texts."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-count:]) or "(the log is empty)"

    def _write(self, name: str, text: str) -> None:
        # In place, not by rename: a file that is bind-mounted into a namespace is seen there by its inode.
        (self.etc / name).write_text(text)


def login_shell() -> str:
    """Return bash, the shell of TPU VM images, or what every Unix has."""
    return next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise VMError(f"environment: {name!r} is not a variable name")
        if "\n" in value or "\0" in value:
            raise VMError(f"environment: the value of {name} must be one line")


def _accounts(users: Iterable[str], home: Path) -> str:
    own = [f"{user}:*:{os.getuid()}:{os.getgid()}::{home}:{login_shell()}" for user in users]
    taken = set(users)
    host = [
        f"{row.pw_name}:*:{row.pw_uid}:{row.pw_gid}:{row.pw_gecos}:{row.pw_dir}:{row.pw_shell}"
        for row in pwd.getpwall()
        if row.pw_name not in taken
    ]
    if PRIVSEP_USER not in taken and not any(row.startswith(f"{PRIVSEP_USER}:") for row in host):
        host.append(f"{PRIVSEP_USER}:*:{_NOBODY}:{_NOBODY}::/:/bin/false")
    return "\n".join([*own, *host]) + "\n"


def _groups(terminals: int) -> str:
    rows = {row.gr_gid: row.gr_name for row in grp.getgrall() if row.gr_name != _TTY}
    rows.setdefault(os.getgid(), "tpu")
    text = "".join(f"{name}:*:{number}:\n" for number, name in rows.items())
    return f"{text}{_TTY}:*:{terminals}:\n"


def _terminal_group(user_namespace: bool) -> int:
    """Return the group of a new terminal as the worker sees it.

    sshd gives a terminal to the group ``tty`` and ends the session if it may not. It does not try when the terminal
    has that group already, so ``tty`` is defined as whatever group this machine's terminals have.
    """
    ends = os.openpty()
    group = os.fstat(ends[1]).st_gid
    for end in ends:
        os.close(end)
    if user_namespace and group != os.getgid():
        return int(Path("/proc/sys/kernel/overflowgid").read_text())  # all groups but the own one look so inside
    return group


def _nsswitch() -> str:
    path = Path("/etc/nsswitch.conf")
    host = path.read_text(errors="replace").splitlines() if path.exists() else []
    kept = [line for line in host if line.partition(":")[0].strip() not in {"passwd", "group", "shadow"}]
    return "\n".join(["passwd: files", "group: files", "shadow: files", *kept]) + "\n"
