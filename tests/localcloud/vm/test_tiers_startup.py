# SPDX-License-Identifier: Apache-2.0
"""The startup script of a TPU VM of the local cloud: when it runs, what it finds, how it ends."""

from __future__ import annotations

from pathlib import Path

from localcloud.testing import eventually
from localcloud.vm.processes import proctable
from tests.localcloud.vm.harness import WAIT_SECONDS, Start, login, output

pytest_plugins = ("tests.localcloud.vm.fixtures",)

COUNT = """#!/bin/sh
echo "$WHERE" >> "$HOME/boots"
"""
STAY = """#!/bin/sh
setsid sleep 1000 < /dev/null > /dev/null 2>&1 &
echo $! > "$HOME/stays"
"""


def lines(path: Path, count: int) -> list[str]:
    """Wait until a file has so many lines; return them."""
    return eventually(
        lambda: path.read_text().splitlines() if path.exists() else [], lambda found: len(found) >= count, WAIT_SECONDS
    )


async def test_script_runs_at_each_boot(vm_start: Start, tmp_path: Path) -> None:
    """It runs when a machine boots, and once more when the machine boots again with the same disk."""
    boots = tmp_path / "disk" / "home" / "boots"
    for count in (1, 2):
        worker = await vm_start(environment={"WHERE": "here"}, startup_script=COUNT, directory="disk")
        assert lines(boots, count) == ["here"] * count
        await worker.kill()


async def test_what_a_script_leaves_behind_ends_with_the_machine(vm_start: Start, tmp_path: Path) -> None:
    """A process in the background outlives the script, is one of the machine's, and is killed with it."""
    worker = await vm_start(startup_script=STAY, directory="disk")
    async with login(worker) as connection:
        home = tmp_path / "disk" / "home"
        (number,) = lines(home / "stays", 1)
        assert await output(connection, f"kill -0 {number} && echo lives") == "lives"
    assert "sleep" in [row.name for pid in worker.processes() if (row := proctable.read(pid))]
    await worker.kill()
    assert worker.processes() == []
