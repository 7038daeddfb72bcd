# SPDX-License-Identifier: Apache-2.0
"""Every command of the documentation is run as it is written, or a list says why not and what shows that it works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from airflow_tpu.core.ledger.bucket_retention import BucketRetention, warnings
from airflow_tpu.core.tpu.commands import ssh_command
from airflow_tpu.core.tpu.resource_name import ResourceName
from tests.docs.gcloud import FORMS, gcloud_problem
from tests.docs.listing import PAGE_AFTER, PAGE_BEFORE, RULES, rule_of, script_of
from tests.docs.pages import ALL, BY_PAGE, PAGES, QUICKSTART, ROOT, SHELLS, Command, commands, languages, name_of
from tests.docs.reading import Done, Reader, judge

RUN_QUICKLY = [page for page, found in BY_PAGE.items() if any(script_of(command, long=False) for command in found)]
GCLOUD = [command for command in ALL if command.text.startswith("gcloud ")]


@pytest.mark.slow
def test_the_quickstart_does_what_it_says(quickstart: tuple[Reader, list[Done]]) -> None:
    """Each command that needs neither Google nor a server succeeds; the command line is that of the installed wheel."""
    judge(quickstart[1], [command for command in BY_PAGE[QUICKSTART] if script_of(command, long=False)])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN_QUICKLY if page != QUICKSTART])
def test_a_page_does_what_it_says(page: str, reader: Reader) -> None:
    """Its commands succeed one after the other in a fresh copy, and print what the page shows."""
    done = reader.follow(page, BY_PAGE[page], reader.clone)
    judge(done, [command for command in BY_PAGE[page] if script_of(command, long=False)])
    printed = [line for one in done for line in one.output.splitlines() if line.startswith("+ gcloud ")]
    assert [problem for line in printed if (problem := gcloud_problem(line.removeprefix("+ ")))] == []


@pytest.mark.parametrize("command", GCLOUD, ids=str)
def test_a_command_for_google_is_spelled_as_its_reference_says(command: Command) -> None:
    """Group, verb, flags and number of arguments are those of Google's reference."""
    assert gcloud_problem(command.text) == ""


def test_commands_that_the_package_prints_are_spelled_as_their_reference_says() -> None:
    """So are the commands for a login and for a bucket that keeps what was deleted."""
    told = warnings("b", BucketRetention(604800, 86400, versioning=True))
    printed = [f"gcloud {text.split('gcloud ', 1)[1].split(';')[0]}" for text in told]
    printed.append(ssh_command(ResourceName.parse("projects/p/locations/us-central1-f/nodes/n")))
    assert [gcloud_problem(text) for text in printed] == [""] * 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gcloud compute tpus coffee list", "no command"),
        ("gcloud compute tpus tpu-vm list --zones us-central1-f", "no flag --zones"),
        ("gcloud compute tpus tpu-vm list us-central1-f", "1 argument(s), not 0"),
        ("gcloud projects add-iam-policy-binding P --role r", "needs --member"),
        ("gcloud services enable tpu.googleapis.com --async=yes", "no flag --async"),
        ("gcloud compute tpus tpu-vm list --zone --quiet", "--zone has no value"),
        ("gcloud composer environments update E --location L", "needs one of update-airflow-configs"),
    ],
)
def test_a_misspelled_command_for_google_is_noticed(text: str, problem: str) -> None:
    """A wrong group, flag or number of arguments, a missing flag and a missing value are named."""
    assert problem in gcloud_problem(text)


def test_every_block_says_what_it_is() -> None:
    """No block of a page is without a language, so that no command hides in it."""
    assert [name_of(page) for page in PAGES if "" in languages(page)] == []


def test_the_lists_name_nothing_that_is_gone() -> None:
    """Each rule, page and form is needed by a command, and the tests that the rules point to exist."""
    used = {rule_of(command) for command in ALL}
    assert [rule.pattern for rule in RULES if rule not in used] == []
    assert [rule.test for rule in RULES if not (ROOT / rule.test).exists()] == []
    assert {*PAGE_BEFORE, *PAGE_AFTER} - set(BY_PAGE) == set()
    spoken = " ".join(command.plain for command in ALL) + (ROOT / "scripts" / "deploy-composer").read_text()
    known = {"compute tpus tpu-vm ssh", "storage buckets update"}
    assert [name for name in FORMS if name not in known and name.rpartition(" ")[0] not in spoken] == []


def test_commands_are_read_as_a_shell_reads_them() -> None:
    """Continued lines, quotes, here-documents, comments and shown output are told apart."""
    page = ROOT / "docs" / "quickstart.md"
    heredoc = next(command for command in commands(page) if command.text.startswith("python3 - "))
    assert heredoc.text.splitlines()[-1] == "END"
    shown = next(command for command in commands(ROOT / "docs" / "grant.md") if command.shown)
    assert (shown.text.count("\n"), shlex.split(shown.plain)[0]) == (1, "airflow-tpu")
    assert SHELLS.isdisjoint({"text", "json"})


def test_a_command_that_fails_or_prints_something_else_is_noticed(tmp_path: Path) -> None:
    """A failure ends the page, missing output is reported; directory and variables outlive a command."""
    (tmp_path / "copy").mkdir()
    typed = [
        Command("a.md", 1, "mkdir in; cd in; export WORD=kept"),
        Command("a.md", 2, 'echo "4.0 days, $WORD"; read -r answer; basename "$PWD$answer"', ("9.5 ... kept", "iny")),
        Command("a.md", 3, "echo more; echo this", ("that",)),
        Command("a.md", 4, "false"),
        Command("a.md", 5, "echo never"),
    ]
    done = Reader(tmp_path).follow("a.md", typed, tmp_path / "copy")
    assert [one.status for one in done] == [0, 0, 0, 1]
    assert [one.missing for one in done] == [[], [], ["that"], []]
