"""The one door to TPU VMs: :func:`choose_driver`, and the shapes that its callers need."""

from __future__ import annotations

import logging
from pathlib import Path

from localcloud.vm.model import (
    TIERS,
    SSHKey,
    SurvivorsLeft,
    TierUnavailable,
    VMDriver,
    VMError,
    Worker,
    WorkerGone,
    WorkerSpec,
)

log = logging.getLogger(__name__)

__all__ = [
    "TIERS",
    "SSHKey",
    "SurvivorsLeft",
    "TierUnavailable",
    "VMDriver",
    "VMError",
    "Worker",
    "WorkerGone",
    "WorkerSpec",
    "choose_driver",
]


async def choose_driver(tier: str, port: int, root: Path) -> VMDriver:
    """Return a driver of the named tier, or with ``auto`` of the strongest one that works on this machine.

    :param tier: ``auto`` or one of :data:`TIERS`.
    :param port: SSH port of all workers; 0 lets the driver pick a free one.
    :param root: directory for the driver's own files.
    :raises TierUnavailable: when the tier (any tier, with ``auto``) does not work here; the text says why.
    """
    # Here, not above: asking for the shapes alone must not load asyncssh.
    from localcloud.vm.probe import open_tier

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
