# SPDX-License-Identifier: Apache-2.0
"""Commands, logins and SFTP of the SSH server that lives in this process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import asyncssh

from localcloud.vm.worker.files import login_shell

_CHUNK = 65536


class Logins(asyncssh.SSHServer):
    """Admits a user by public key only.

    :param keys: directory with one file of authorized keys per user, read at each login.
    """

    def __init__(self, keys: Path) -> None:
        self._keys = keys

    def public_key_auth_supported(self) -> bool:
        """Yes."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Look the key up in the user's file; comments do not matter."""
        offered = key.export_public_key().split()[:2]
        known = {path.name: path for path in self._keys.iterdir()}
        if username not in known:
            return False
        return any(line.split()[:2] == offered for line in known[username].read_bytes().splitlines())


class HomeSFTP(asyncssh.SFTPServer):
    """SFTP that starts in ``home``."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], home: Path) -> None:
        super().__init__(channel)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        """Take relative paths from ``home``, not from where this process was started."""
        return os.path.join(self._home, path)


class Shell:
    """Runs the commands of all sessions of a worker.

    :param home: where they start.
    :param environment: their variables, beside those that a login sets.
    :ivar started: the commands that run, by pid.
    :ivar used: whether there was ever one.
    """

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = dict(environment)
        self.started: dict[int, asyncio.subprocess.Process] = {}
        self.used = False
        self._ending: set[asyncio.Task[None]] = set()

    async def spawn(self, command: Sequence[str]) -> None:
        """Run a command without a session, in the background.

        :param command: its words; its environment is what they make of an empty one.
        """
        self.used = True
        nothing = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nothing, stdout=nothing, stderr=nothing, cwd=self._home, start_new_session=True
        )
        self.started[process.pid] = process
        task = asyncio.create_task(self._ended(process))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        self.started.pop(process.pid, None)

    async def run(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run one command and report its status after its last byte of output."""
        self.used = True
        shell = login_shell()
        process = await asyncio.create_subprocess_exec(
            *([shell, "-c", channel.command] if channel.command else [shell]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._home,
            env=self._variables(channel.get_extra_info("username"), shell),
            start_new_session=True,
        )
        self.started[process.pid] = process
        stdin, stdout, stderr = _pipes(process)
        feeding = asyncio.create_task(_feed(channel, stdin, process.pid))
        try:
            await asyncio.gather(_drain(stdout, channel.stdout), _drain(stderr, channel.stderr))
            _report(channel, await process.wait())
        finally:
            feeding.cancel()
            if process.returncode is not None:
                self.started.pop(process.pid, None)

    def _variables(self, user: str, shell: str) -> dict[str, str]:
        login = {"HOME": str(self._home), "USER": user, "LOGNAME": user, "SHELL": shell, "PATH": os.defpath}
        return {**login, **self._environment}


def _pipes(
    process: asyncio.subprocess.Process,
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RuntimeError("the command was started without pipes")
    return process.stdin, process.stdout, process.stderr


async def _feed(channel: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter, group: int) -> None:
    """Pass standard input and signals on until the end of either side."""
    ended = False
    while not ended:
        try:
            data = await channel.stdin.read(_CHUNK)
            stdin.write(data)
            await stdin.drain()
            ended = not data
        except asyncssh.SignalReceived as request:
            os.killpg(group, signal.Signals[f"SIG{request.signal}"])
        except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            continue
        except (ConnectionError, asyncssh.Error):
            ended = True
    stdin.close()


async def _drain(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    """Pass output on; when the client is gone the pipe is read on, so that the command does not block."""
    while data := await source.read(_CHUNK):
        try:
            target.write(data)
            await target.drain()
        except (ConnectionError, asyncssh.Error):
            continue


def _report(channel: asyncssh.SSHServerProcess[bytes], status: int) -> None:
    if status >= 0:
        channel.exit(status)
    else:
        channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))


def server_factory(keys: Path) -> Callable[[], Logins]:
    """Return what makes a login check per connection."""
    return lambda: Logins(keys)
