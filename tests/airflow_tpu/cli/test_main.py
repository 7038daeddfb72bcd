# SPDX-License-Identifier: Apache-2.0
"""The console script: what it prints, what it writes, how it exits."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from airflow.cli.cli_config import GroupCommand

from airflow_tpu.cli.airflow_commands import get_commands
from airflow_tpu.cli.main import main
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.get_provider_info import get_provider_info
from tests.airflow_tpu.shipped import GENERATIONS

ROOT = Path(__file__).parents[3]
LETTER = """
<p>안녕하세요, your project has access for 90 days:</p>
<ul><li><b>64</b>&nbsp;spot Cloud TPU v6e chips in zone us-east1-d</li>
<li>5 on-demand Cloud TPU v2-8 device(s) in zone us-central1-f</li></ul>
"""
FACTS = ["--project-id", "my-tpu-project", "--project-number", "123456789012", "--bucket", "my-tpu-bucket"]
FACTS += ["--start", "2026-09-03"]

Import = Callable[..., int]


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    """A letter, saved as it was pasted."""
    path = tmp_path / "LETTER.html"
    path.write_text(LETTER, encoding="utf-8")
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the grant file goes; its folder does not exist yet."""
    return tmp_path / "grants" / "grant.yaml"


@pytest.fixture
def imported(letter: Path, target: Path) -> Import:
    """Run ``grant import`` of the letter with some more options."""

    def run(*more: str, source: str = str(letter)) -> int:
        return main(["grant", "import", source, *FACTS, "--output", str(target), *more])

    return run


def read(path: Path) -> Grant:
    """The grant in a file."""
    return Grant.parse(yaml.safe_load(path.read_text(encoding="utf-8")), GENERATIONS)


def test_import_shows_asks_and_writes(
    imported: Import, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was understood is printed, and after a yes the file holds exactly that."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert imported() == 0
    printed = capsys.readouterr().out
    assert "64  spot       v6e   chips    us-east1-d" in printed
    assert "90 days from 2026-09-03 00:00 (no timezone), until 2026-12-01 10:00 UTC" in printed
    assert "covered from 2026-09-03 12:00 UTC" in printed
    assert f"Write {target}? [y/N]" in printed
    rows = [str(row) for row in read(target).allowances]
    assert rows == ["64 spot v6e chips in us-east1-d", "5 on-demand v2-8 devices in us-central1-f"]


def test_timezone_of_the_letter(imported: Import, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A timezone that is given says which hours are covered, and the file keeps it."""
    assert imported("--yes", "--timezone", "Asia/Seoul") == 0
    printed = capsys.readouterr().out
    assert "90 days from 2026-09-03 00:00 Asia/Seoul, until 2026-12-01 15:00 UTC" in printed
    assert "covered from" not in printed
    assert read(target).timezone == "Asia/Seoul"


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_is_written(
    imported: Import, target: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A no, a mere return and a closed terminal all leave the disk as it was."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert imported() == 1
    assert not target.exists()


def test_existing_file_is_kept(imported: Import, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A grant file is replaced only by --force, whatever was confirmed."""
    assert imported("--yes", "--days", "30") == 0
    assert imported("--yes", "--days", "60") == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert read(target).days == 30
    assert imported("--yes", "--force", "--days", "60") == 0
    assert read(target).days == 60


def test_doubts_are_printed(imported: Import, letter: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that was not understood is shown before the question and kept in the file."""
    letter.write_text(LETTER + "16 spot Cloud TPU v9x chips in zone us-east1-d", encoding="utf-8")
    assert imported("--yes") == 0
    assert (
        "NOT UNDERSTOOD, add it to the file by hand if it is a row: '16 spot Cloud TPU v9x" in capsys.readouterr().out
    )
    assert "# NOT UNDERSTOOD, and so not free: '16 spot" in target.read_text(encoding="utf-8")


def test_every_fault_is_printed(letter: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong facts are refused together, without a traceback and before any question."""
    facts = [
        "--project-id",
        "123",
        "--project-number",
        "x",
        "--bucket",
        "B",
        "--start",
        "soon",
        "--output",
        str(target),
    ]
    assert main(["grant", "import", str(letter), *facts]) == 1
    errors = capsys.readouterr().err
    assert all(field in errors for field in ("project_id =", "project_number =", "bucket =", "start ="))
    assert "created" not in errors, "the command line creates no TPU"
    assert not target.exists()


def test_missing_letter_is_named(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is an error that names it."""
    assert imported("--yes", source="nowhere.txt") == 1
    assert "nowhere.txt" in capsys.readouterr().err


def test_question_needs_somebody_to_answer(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    """A letter from standard input is not read unless the answer is given with it."""
    assert imported(source="-") == 1
    assert "add --yes" in capsys.readouterr().err


def test_show_prints_the_grant_of_airflow(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name it is the grant that the DAGs use."""
    assert main(["grant", "show"]) == 0
    assert "project  local-project, number 100000000001" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["v2-8", "us-central1-f", "on-demand"], 0, "covered by 5 on-demand v2-8 devices in us-central1-f"),
        (
            ["v5litepod-64", "europe-west4-b", "spot", "--internal-ips"],
            0,
            "covered by 64 spot v5e chips in europe-west4-b",
        ),
        (["v5litepod-64", "europe-west4-b", "spot"], 1, "16 workers an external IPv4 address: 0.0025 USD an hour each"),
        (["v2-8", "us-central1-f", "spot", "--runtime-version", "2.16"], 1, "nearest: tpu-vm-tf-2.16.1-pjrt"),
        (["v2-8", "us-central1-b", "on-demand"], 1, "nearest: us-central1-f"),
        (["v5e-8", "us-central1-a", "spot"], 1, "nearest: v5litepod-8"),
        (["v2-8", "us-central1-f", "on-demand", "--hours", "99999"], 1, "may last longer than the grant"),
        (["v2-8", "us-central1-f", "on-demand", "--grant", "no.yaml"], 1, "local.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_check_gives_the_verdict(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status says whether the TPU is covered, and the text which row covers it or what would."""
    kind, zone, tier, *more = arguments
    assert main(["grant", "check", "--accelerator-type", kind, "--zone", zone, "--tier", tier, *more]) == status
    printed = capsys.readouterr()
    assert words in (printed.err if status else printed.out)


CHECK = ["grant", "check", "--accelerator-type", "v2-8", "--zone", "us-central1-f"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "required: COMMAND"),
        (["grant", "check"], "required: --accelerator-type, --zone"),
        ([*CHECK, "--tier", "free"], "invalid choice: 'free'"),
        ([*CHECK, "--hours", "nan"], "--hours: invalid"),
        (["usage", "--from", "yesterday"], "--from: invalid"),
    ],
)
def test_wrong_command_line_exits_with_2(line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An incomplete or wrong command is a usage error that names the argument."""
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_letter_travels_through_a_real_process(tmp_path: Path, target: Path) -> None:
    """From a shell: the letter on standard input, the file on disk, the exit status of the process."""
    command = [
        sys.executable,
        "-m",
        "airflow_tpu.cli",
        "grant",
        "import",
        "-",
        *FACTS,
        "--yes",
        "--output",
        str(target),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    for status in (0, 1):  # the second time the file exists
        done = subprocess.run(command, input=LETTER.encode(), capture_output=True, env=environment, cwd=tmp_path)
        assert done.returncode == status, done.stderr.decode()
    assert read(target).project_id == "my-tpu-project"


def test_provider_names_the_commands() -> None:
    """Airflow finds the function that gives its command line the group ``tpu`` with every verb."""
    assert get_provider_info()["cli"] == [f"{get_commands.__module__}.{get_commands.__name__}"]
    (group,) = get_commands()
    assert isinstance(group, GroupCommand)
    names = {f"{one.name} {verb.name}" for one in group.subcommands for verb in getattr(one, "subcommands", ())}
    assert (group.name, names) == ("tpu", {"grant import", "grant show", "grant check", "catalogue check"})
    assert "usage" in {one.name for one in group.subcommands}


@pytest.mark.slow
def test_airflows_own_command_line_has_the_verbs(tmp_path: Path) -> None:
    """With the provider installed, ``airflow tpu grant check`` answers and exits like the console script."""
    installed = tmp_path / "airflow_provider_tpu-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-provider-tpu\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text(
        "[apache_airflow_provider]\nprovider_info = airflow_tpu.get_provider_info:get_provider_info\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "plugins")])}
    asked = ["--accelerator-type", "v2-8", "--zone", "us-central1-f", "--tier"]
    answers = {}
    for tier in ("on-demand", "free"):
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "tpu", "grant", "check", *asked, tier],
            capture_output=True,
            text=True,
            env=environment,
        )
        answers[tier] = (done.returncode, done.stdout)
    assert answers["on-demand"][0] == 0
    assert "covered by 5 on-demand v2-8 devices in us-central1-f" in answers["on-demand"][1]
    assert answers["free"][0] == 2
