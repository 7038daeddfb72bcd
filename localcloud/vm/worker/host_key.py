# SPDX-License-Identifier: Apache-2.0
"""Host keys: ed25519, in the form that OpenSSH reads, without a call of ssh-keygen."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def write_host_key(path: Path) -> str:
    """Write a new private key to ``path`` (mode 0600, replaced at once) and return ``ssh-ed25519 BASE64``."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(private)
    os.replace(draft, path)
    return public.decode("ascii")
