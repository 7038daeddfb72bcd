# SPDX-License-Identifier: Apache-2.0
"""A clone works on every system, whatever git is set to there."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
BINARY = frozenset({".png"})


def test_no_file_of_a_windows_clone_has_windows_line_ends(tmp_path: Path) -> None:
    """Git for Windows is set to write CRLF, with which bash, a shebang line and a container's entry point fail."""
    command = ["git", "-c", "core.autocrlf=true", "checkout-index", "--all", f"--prefix={tmp_path}/"]
    subprocess.run(command, cwd=ROOT, check=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in BINARY]
    assert tmp_path / "docker/localcloud-start" in files
    assert [path.relative_to(tmp_path) for path in files if b"\r\n" in path.read_bytes()] == []
