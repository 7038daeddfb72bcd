# SPDX-License-Identifier: Apache-2.0
"""One SSH connection to one worker: opened inside a boot window, and every failure told apart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.endpoints import SSH_PORT
from airflow_tpu.core.backoff import ExponentialBackoff
from airflow_tpu.errors import ConfigError, ConnectionFailed, Fault, HostKeyMismatch, LoginRefused, RemoteError

if TYPE_CHECKING:
    import asyncssh

log = logging.getLogger(__name__)

# More handshakes at once starve each other of CPU, and sshd's MaxStartups drops connections at random.
_HANDSHAKES_AT_ONCE = 20
_BACKOFF = ExponentialBackoff(first=0.5, longest=10.0, factor=1.6, jitter=0.5)
_handshakes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class WorkerAddress:
    """Where a worker listens.

    :param host: address.
    :param port: of sshd.
    :param host_key: ``ssh-ed25519 AAAA...`` as pinned for this incarnation; None trusts the first key it shows.
    """

    host: str
    port: int = SSH_PORT
    host_key: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Login:
    """Who logs in.

    :param user: login name.
    :param private_key: in OpenSSH or PEM form, without a passphrase; never shown.
    """

    user: str
    private_key: str = field(repr=False)


@dataclass(frozen=True)
class Timing:
    """Bounds of every wait, in seconds.

    :param boot_window: how long refused, silent and unauthorised connections are tried again. READY promises only
        that login will work soon: minutes have been seen between the two.
    :param connect: one try, from the first packet to the authenticated session.
    :param keepalive: between two signs of life of the SSH protocol; three unanswered end the connection.
    :param frame: longest silence of a follower, which says something every 2 s.
    :param command: a command that should answer at once.
    """

    boot_window: float = 300.0
    connect: float = 10.0
    keepalive: float = 3.0
    frame: float = 8.0
    command: float = 60.0


async def connect(address: WorkerAddress, login: Login, timing: Timing) -> asyncssh.SSHClientConnection:
    """Open a connection; try again, with jitter, until the boot window closes.

    :raises ConnectionFailed: refused, silent or cut off to the last.
    :raises LoginRefused: the key was not accepted to the last.
    :raises HostKeyMismatch: at once.
    :raises ConfigError: if the private key cannot be read.
    """
    options = _options(address, login, timing)
    clock = asyncio.get_running_loop().time
    started, tries = clock(), 0
    while True:
        tries += 1
        try:
            return await _try(address, login, timing, options)
        except (ConnectionFailed, LoginRefused) as error:
            left = started + timing.boot_window - clock()
            if left <= 0:
                raise type(error)(f"{error} ({tries} tries in {clock() - started:.0f} s)") from error
            log.debug("%s; trying again", error)
        await asyncio.sleep(min(left, _BACKOFF.pause(tries)))


async def _try(
    address: WorkerAddress, login: Login, timing: Timing, options: dict[str, Any]
) -> asyncssh.SSHClientConnection:
    import asyncssh

    semaphore = _handshakes.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_HANDSHAKES_AT_ONCE))
    async with semaphore:
        try:
            # On every way out but success asyncssh aborts the half-open session; sshd counts those.
            async with asyncio.timeout(timing.connect):
                return await asyncssh.connect(address.host, address.port, **options)
        except (OSError, asyncssh.Error) as error:
            raise _explained(error, address, login) from error


def _options(address: WorkerAddress, login: Login, timing: Timing) -> dict[str, Any]:
    """Nothing of the machine's own SSH set-up counts: no config file, no agent, no default keys or known hosts."""
    import asyncssh

    logging.getLogger("asyncssh").setLevel(logging.WARNING)  # it reports every channel at INFO, to the task's log
    try:
        key = asyncssh.import_private_key(login.private_key)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        fault = Fault("private_key", "(hidden)", f"cannot be read: {error}")
        raise ConfigError([fault], "the SSH connection") from error
    return {
        "username": login.user,
        "client_keys": [key],
        "known_hosts": None if address.host_key is None else ([_host_key(address.host_key)], [], []),
        "config": None,
        "agent_path": None,
        "preferred_auth": ("publickey",),
        "gss_host": None,
        "compression_algs": None,
        # Measured: 308 MB/s with AES-GCM, 88 to 132 MB/s with the others.
        "encryption_algs": ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr"],
        "keepalive_interval": timing.keepalive,
        "keepalive_count_max": 3,
        "login_timeout": timing.connect,
    }


def _host_key(text: str) -> asyncssh.SSHKey:
    import asyncssh

    try:
        return asyncssh.import_public_key(text)
    except asyncssh.KeyImportError as error:
        raise ConfigError([Fault("host_key", text, f"is no public key: {error}")], "the worker's address") from error


def _explained(error: Exception, address: WorkerAddress, login: Login) -> RemoteError:
    """Return the error of our tree; each text names the usual cause."""
    import asyncssh

    if isinstance(error, asyncssh.HostKeyNotVerifiable) or (
        address.host_key is not None and isinstance(error, asyncssh.KeyExchangeFailed)
    ):
        return HostKeyMismatch(
            f"{address} shows another host key than the one pinned for this TPU: either another machine answers "
            "there, or another user re-created the TPU. Nothing was sent to it."
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return LoginRefused(
            f"{address} refuses the key of {login.user!r}: it has not arrived yet, or the project enforces OS Login, "
            "which ignores keys in metadata"
        )
    if isinstance(error, ConnectionRefusedError):
        return ConnectionFailed(f"{address} refuses connections: sshd is not running (yet), or not on this port")
    if isinstance(error, TimeoutError):
        return ConnectionFailed(
            f"{address} does not answer: no firewall rule for SSH, no external address, or a machine that hangs"
        )
    return ConnectionFailed(f"connection to {address} failed: {error}")


@contextlib.asynccontextmanager
async def lost_connections(address: WorkerAddress, doing: str) -> AsyncIterator[None]:
    """Turn whatever a lost connection raises in the block into :class:`ConnectionFailed`."""
    import asyncssh

    try:
        yield
    except TimeoutError as error:
        raise ConnectionFailed(f"{address} fell silent while {doing}") from error
    except (OSError, asyncssh.Error, asyncio.IncompleteReadError) as error:
        raise ConnectionFailed(f"connection to {address} was lost while {doing}: {error}") from error
