# SPDX-License-Identifier: Apache-2.0
"""The ``ssh-keys`` entry of node metadata: who may log in on the VMs of a node."""

from __future__ import annotations

from collections.abc import Mapping

from localcloud.vm.worker.interface import SSHKey


def parse_ssh_keys(metadata: Mapping[str, str]) -> tuple[SSHKey, ...]:
    """Return the keys of the lines ``USER:KEYTYPE BASE64 COMMENT``; other lines are ignored, as Google does.

    :param metadata: node metadata.
    """
    found = []
    for line in metadata.get("ssh-keys", "").splitlines():
        user, separator, key = line.strip().partition(":")
        if separator and user and len(key.split()) >= 2:
            found.append(SSHKey(user.strip(), key.strip()))
    return tuple(found)
