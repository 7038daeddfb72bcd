# SPDX-License-Identifier: Apache-2.0
"""What the documentation tells people to type exists, is spelled as the programs read it, and no link leads nowhere."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_tpu.cli.main import parser as product_parser
from localcloud.cli.main import parser as cloud_parser
from tests.docs.pages import PAGES, ROOT, name_of

# What a sentence mentions in passing; what stands in a block is run by tests/docs.
PROGRAMS: dict[tuple[str, ...], Callable[[], argparse.ArgumentParser]] = {
    ("airflow-tpu",): product_parser,
    ("airflow", "tpu"): product_parser,
    ("python", "-m", "localcloud"): cloud_parser,
}
MENTION = re.compile(r"`((?:airflow-tpu|airflow tpu|python -m localcloud|make) [a-z][^`]*)`")
BLOCK = re.compile(r"^```(?:console|bash|sh)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANY_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")
# Programs that are not ours: what they are told is for a machine with Google's command line, Docker or git.
FOREIGN = {"gcloud", "git", "docker", "printf", "pip"}


def commands(page: Path) -> Iterator[list[str]]:
    """Words of each command of a page's console blocks, with comments and continuation lines resolved."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("$ ", "make ", "scripts/", "python -m localcloud", "airflow-tpu ")):
                yield from split(line.removeprefix("$ "))


def split(line: str) -> Iterator[list[str]]:
    """The commands of one line."""
    for part in line.split(" && "):
        words = shlex.split(part, comments=True)
        if words:
            yield words


ALL = [(page.relative_to(ROOT).as_posix(), words) for page in PAGES for words in commands(page)]


def problem_of(words: list[str]) -> str:
    """Why a command would not work; empty if it would."""
    program, rest = words[0], words[1:]
    if program == "make":
        targets = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if set(rest) <= {name for line in targets for name in line.split()} else "no such target"
    if program.startswith("scripts/"):
        path = ROOT / program
        return "" if path.is_file() and path.stat().st_mode & 0o100 else "no such script"
    if program == "airflow-tpu":
        return parsed(product_parser(), rest)
    if words[:3] == ["python", "-m", "localcloud"]:
        return parsed(cloud_parser(), words[3:])
    if words[:2] == ["airflow", "tpu"]:
        return parsed(product_parser(), words[2:])
    return "" if program in FOREIGN or "=" in program else "nobody knows this program"


def parsed(parser: object, words: list[str]) -> str:
    """What argparse says of some words."""
    try:
        parser.parse_args(words)  # type: ignore[attr-defined]
    except SystemExit as ended:
        return "" if ended.code == 0 else f"argparse ends with {ended.code}"
    return ""


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{page}: {' '.join(words)}" for page, words in ALL])
def test_command_is_spelled_as_its_program_reads_it(page: str, words: list[str]) -> None:
    """Every documented command names a target, script, verb and options that exist."""
    assert problem_of(words) == "", f"{page}: {' '.join(words)}"


def test_commands_are_found() -> None:
    """The pages are really searched, and a command that does not exist is noticed."""
    assert len(ALL) >= 20
    assert problem_of(["make", "coffee"])
    assert problem_of(["scripts/coffee"])
    assert problem_of(["airflow-tpu", "coffee"])
    assert problem_of(["python", "-m", "localcloud", "coffee"])
    assert problem_of(["coffee"])


def mention_problem(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Why a command that a sentence mentions, in part perhaps, does not exist; empty if it does."""
    words = re.sub(r"[\[\]]", " ", text).split()
    if words[0] == "make":
        return problem_of(words)
    program = next(known for known in PROGRAMS if words[: len(known)] == list(known))
    rest = words[len(program) :]
    verbs = list(itertools.takewhile(lambda word: word.isalpha() and word.islower(), rest))
    capsys.readouterr()
    wrong = parsed(PROGRAMS[program](), [*verbs, "--help"])
    helped = capsys.readouterr().out
    unknown = [word for word in rest if word.startswith("--") and word not in helped]
    return wrong or (f"no flag {unknown[0]}" if unknown else "")


def test_what_sentences_mention_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb and flag of our programs that stands in the middle of a sentence exists."""
    mentions = [(name_of(page), text) for page in PAGES for text in MENTION.findall(page.read_text(encoding="utf-8"))]
    assert len(mentions) >= 20
    assert [(*one, problem) for one in mentions if (problem := mention_problem(one[1], capsys))] == []
    assert mention_problem("airflow-tpu coffee", capsys)
    assert mention_problem("airflow-tpu usage --coffee", capsys) == "no flag --coffee"
    assert mention_problem("make coffee", capsys)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_link_leads_nowhere(page: Path) -> None:
    """Each relative link of a page leads to a file of the repository."""
    text = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = [target.split(" ")[0] for target in LINK.findall(text)]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_misses_its_heading(page: Path) -> None:
    """Each link to a part of a page leads to a heading that is there."""
    text = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))
    parts = [(page.parent / target if target else page, anchor) for target, anchor in ANCHOR.findall(text)]
    assert [(target.name, anchor) for target, anchor in parts if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    titles = HEADING.findall(ANY_BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_found_from_the_first_one() -> None:
    """The README leads to each page of docs/."""
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert {name_of(page) for page in PAGES if page.parent == ROOT / "docs"} - linked == set()
