# SPDX-License-Identifier: Apache-2.0
"""A reader who types what a page says, from top to bottom, in one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.docs.listing import HERE, PAGE_AFTER, PAGE_BEFORE, filled, script_of
from tests.docs.pages import ROOT, Command

MARK = "-- command"
LEFT_AT_HOME = shutil.ignore_patterns(
    ".*", "__pycache__", "dist", "build", "connections", "tests", "images", "grant.yaml", "*.egg-info"
)
VARYING = re.compile(r"\d{4}-\d\d-\d\d|\d+\.\d+")


@dataclass(frozen=True)
class Done:
    """A command that was typed.

    :param command: which.
    :param status: its exit status, None if it did not end.
    :param output: what it printed, errors included.
    """

    command: Command
    status: int | None
    output: str

    @property
    def missing(self) -> list[str]:
        """Lines that the page shows and that were not printed; dates and fractions may differ, ``...`` is anything."""
        said = _levelled(self.output)
        return [line for line in self.command.shown if not re.search(_pattern(filled(line)), said)]


def _levelled(text: str) -> str:
    return VARYING.sub("#", text)


def _pattern(line: str) -> str:
    return r".*".join(re.escape(_levelled(part)) for part in line.split("..."))


@dataclass(frozen=True)
class Reader:
    """A reader at a terminal, in a copy of this repository.

    :param folder: an empty directory; copy, home and files go there.
    :param programs: folder of an environment in which the package is installed; None before that.
    :param port: for an Airflow, where the page starts one.
    """

    folder: Path
    programs: Path | None = None
    port: int = 8080

    @property
    def clone(self) -> Path:
        """The copy."""
        return self.folder / "airflow-tpu"

    def copy(self) -> None:
        """Fetch what git would."""
        shutil.copytree(ROOT, self.clone, ignore=LEFT_AT_HOME)

    def follow(self, page: str, commands: Iterable[Command], where: Path, long: bool = False) -> list[Done]:
        """Type the commands of a page until one fails.

        :param where: the directory to begin in.
        :param long: the long ones, too.
        """
        typed = [(command, text) for command in commands if (text := script_of(command, long))]
        script = self.folder / "typed.sh"
        script.write_text(_script(page, [text for _, text in typed]), encoding="utf-8")
        (self.folder / "answers").write_text("y\n", encoding="utf-8")
        shell = ["bash", "--noprofile", "--norc", str(script)]
        # To a file, not a pipe: what a command leaves running in the background would hold a pipe open.
        with (self.folder / "printed").open("w+", encoding="utf-8") as printed:
            ended = subprocess.run(
                shell, cwd=where, env=self.environment(where), stdout=printed, stderr=subprocess.STDOUT, check=False
            )
            printed.seek(0)
            return _read(typed, printed.read(), ended.returncode)

    def environment(self, where: Path) -> dict[str, str]:
        """Nothing of this test's own Airflow, and no way to a package index."""
        own = {name: os.environ[name] for name in ("LANG", "TZ", "TMPDIR") if name in os.environ}
        folders = [self.programs, Path(sys.prefix, "bin"), *os.get_exec_path()]
        return {
            **own,
            "HOME": str(self.folder),
            "PATH": os.pathsep.join(str(folder) for folder in folders if folder),
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR": str(where / "include"),
            "ANSWERS": str(self.folder / "answers"),
            "DOCS": str(HERE),
            "TREE": str(self.clone),
            "PACKAGES": sysconfig.get_path("purelib"),
            # Of pip: build with what is here, and ask no index. Its "no" is the wrong way round.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }


def _script(page: str, texts: list[str]) -> str:
    """All that is typed; what has to be ended is ended at any rate, and then what must hold is looked at."""
    after = f"after() {{\n{PAGE_AFTER.get(page, ':')}\n}}\ntrap 'code=$?; after || code=1; exit $code' EXIT"
    return "\n".join([after, PAGE_BEFORE.get(page, ""), *map(_step, range(len(texts)), texts), ""])


def _step(number: int, text: str) -> str:
    """One command, its input and the mark after it; what it sets and where it goes stays for the next one."""
    mark = f'status=$?\necho\necho "{MARK} {number} ended with $status"\n[ $status = 0 ] || exit $status'
    return f'{{\n{text}\n}} <"$ANSWERS"\n{mark}'


def _read(typed: list[tuple[Command, str]], printed: str, status: int) -> list[Done]:
    found: list[Done] = []
    rest = printed
    for number, (command, _) in enumerate(typed):
        output, mark, after = rest.partition(f"\n{MARK} {number} ended with ")
        if not mark:
            return [*found, Done(command, None, output)]
        code, _, rest = after.partition("\n")
        found.append(Done(command, int(code), output))
        if int(code):
            return found
    if status and found:
        found[-1] = Done(found[-1].command, status, found[-1].output + rest)
    return found


def judge(done: list[Done], expected: list[Command]) -> None:
    """Demand that all of these commands were typed and did what the page says."""
    for one in done:
        assert one.status == 0, f"{one.command}\n{one.output}"
        assert one.missing == [], f"{one.command} did not print what the page shows\n{one.output}"
    assert [one.command for one in done] == expected
