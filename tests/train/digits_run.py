# SPDX-License-Identifier: Apache-2.0
"""Short runs of digits.py."""

from __future__ import annotations

from pathlib import Path

from tests.train.script_run import ScriptRun

STEPS = 300
# Small batches: the process, not the arithmetic, is under test.
SHORT = ("--steps", str(STEPS), "--batch-size", "16", "--eval-every", "50")


class DigitsRun(ScriptRun):
    """One short run of digits.py.

    :param directory: where everything lies.
    :param arguments: further arguments, after those that make the run short.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__("digits.py", directory, *SHORT, *arguments)

    @property
    def final_state(self) -> dict[str, bytes]:
        """Every variable and the history at the last step, as bytes."""
        return self.state_at(STEPS)

    @property
    def metrics(self) -> dict[str, bytes]:
        """The measurements that a person sees, as bytes."""
        return {name: (self.output / name).read_bytes() for name in ("metrics.json", "metrics.jsonl")}
