# SPDX-License-Identifier: Apache-2.0
"""Which isolation tier TPU VMs run in: :func:`choose_driver` tries a tier by running a worker in it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path

import asyncssh

from localcloud.vm.inprocess.worker import InProcessDriver
from localcloud.vm.sshd.isolation import Bubblewrap, Subreaper
from localcloud.vm.sshd.worker import make_driver
from localcloud.vm.worker.interface import TIERS, SSHKey, TierUnavailable, VMDriver, VMError, Worker, WorkerSpec

PROBE_SECONDS = 120.0
"""Bound on a probe, which takes 0.2 s on an idle machine: a busy machine must not end up in a weaker tier."""

_USER = "probe"
_COMMAND = 'setsid sleep 600 </dev/null >/dev/null 2>&1 & printf %s "$HOME"'
log = logging.getLogger(__name__)


async def choose_driver(tier: str, port: int, root: Path) -> VMDriver:
    """Return a driver of the named tier, or with ``auto`` of the strongest one that works on this machine.

    :param tier: ``auto`` or one of :data:`TIERS`.
    :param port: SSH port of all workers; 0 lets the driver pick a free one.
    :param root: directory for the driver's own files.
    :raises TierUnavailable: when the tier (any tier, with ``auto``) does not work here; the text says why.
    """
    if tier != "auto":
        return await open_tier(tier, port, root)
    reasons: list[str] = []
    for name in TIERS:
        try:
            driver = await open_tier(name, port, root)
        except TierUnavailable as reason:
            reasons.append(str(reason))
            log.info("%s", reason)
        else:
            log.info("TPU VMs run in tier %s", name)
            return driver
    raise TierUnavailable("TPU VMs cannot run on this machine:\n" + "\n".join(reasons))


async def open_tier(tier: str, port: int, root: Path) -> VMDriver:
    """Return a driver of the tier after starting, logging in to and killing a worker of it.

    A look at versions and capabilities would not do: bubblewrap may start and yet forbid what sshd needs (another
    user id, for its first stage), and whether it does depends on the kernel, on seccomp and on AppArmor.

    :raises TierUnavailable: when any of it fails; the text says what and why.
    """
    driver = await _make(tier, port)
    directory = _directory(root, tier)
    async with contextlib.AsyncExitStack() as failing:
        failing.push_async_callback(driver.close)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await _try_out(driver, directory)
        except (VMError, asyncssh.Error, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise TierUnavailable(f"tier {tier} does not work on this machine: {reason}") from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        failing.pop_all()
    return driver


def _directory(root: Path, tier: str) -> Path:
    return root.absolute() / f"probe-{tier}"


async def _make(tier: str, port: int) -> VMDriver:
    if tier == "bwrap":
        return await make_driver(Bubblewrap(), port)
    if tier == "sshd":
        return await make_driver(Subreaper(), port)
    if tier == "inprocess":
        return InProcessDriver(port)
    raise VMError(f"unknown tier {tier!r}; choose one of auto, {', '.join(TIERS)}")


async def _try_out(driver: VMDriver, directory: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    public = SSHKey(_USER, key.export_public_key().decode())
    spec = WorkerSpec("probe", "local", 0, "probe", (public,), {}, directory)
    worker = await driver.start(spec)
    home = await _ask_home(worker, key)
    await worker.kill()
    if home != str(directory / "home"):
        raise TierUnavailable(f"a login landed in {home or 'nowhere'} instead of its home")


async def _ask_home(worker: Worker, key: asyncssh.SSHKey) -> str:
    known = asyncssh.import_known_hosts(f"[{worker.address}]:{worker.port} {worker.host_key}\n")
    async with asyncssh.connect(
        worker.address,
        worker.port,
        username=_USER,
        client_keys=[key],
        known_hosts=known,
        config=None,
        agent_path=None,
    ) as connection:
        return str((await connection.run(_COMMAND)).stdout)
