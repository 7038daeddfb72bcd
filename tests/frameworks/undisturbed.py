# SPDX-License-Identifier: Apache-2.0
"""A training that nothing disturbs: what every killed one must equal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.frameworks.framework_run import ENDLESS, TIMEOUT
from tests.train.script_run import clean_environment


class Undisturbed:
    """A program, run to its end by hand; it has only been started, so that it shares the time of the first test.

    :param folder: for its output.
    :param command: with ``{folder}`` where it may save.
    """

    def __init__(self, folder: Path, *command: str) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "allow").write_text(str(ENDLESS))
        environment = {**clean_environment(), "TRC_OUTPUT_DIR": str(folder), "ALLOW": str(folder / "allow")}
        argv = [word.format(folder=folder / "checkpoints") for word in command]
        self._process = subprocess.Popen(argv, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ended_as(self, name: str) -> dict[str, Any]:
        """Wait for its end; how the training of this name ended."""
        assert self._process.wait(TIMEOUT) == 0
        document: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_bytes())
        return document
