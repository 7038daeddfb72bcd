# SPDX-License-Identifier: Apache-2.0
"""Letters of the TPU Research Cloud, as they are pasted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.letter.grant_file import Facts, grant_of, grant_text
from airflow_tpu.core.letter.letter import Letter, read_letter
from airflow_tpu.errors import GrantError
from tests.airflow_tpu.shipped import GENERATIONS

OLD = "{} Cloud TPU {} device(s) in zone {}"
NEW = "{} Cloud TPU {} chips in zone {}"
ROWS_2019 = [
    OLD.format("100 preemptible", "v3-8", "us-central1-a"),
    OLD.format("5 on-demand", "v2-8", "us-central1-f"),
    OLD.format("5 on-demand", "v3-8", "us-central1-a"),
]
ROWS_2020 = [
    OLD.format("5 on-demand", "v2-8", "us-central1-f"),
    OLD.format("100 preemptible", "v2-8", "us-central1-f"),
    OLD.format("5 on-demand", "v3-8", "europe-west4-a"),
]
ROWS_2026 = [
    NEW.format("32 spot", "v4", "us-central2-b"),
    NEW.format("32 on-demand", "v4", "us-central2-b"),
    NEW.format("64 spot", "v5e", "europe-west4-b"),
    NEW.format("64 spot", "v5e", "us-central1-a"),
    NEW.format("64 spot", "v6e", "europe-west4-a"),
    NEW.format("64 spot", "v6e", "us-east1-d"),
]
READ_2019 = [
    "100 spot v3-8 devices in us-central1-a",
    "5 on-demand v2-8 devices in us-central1-f",
    "5 on-demand v3-8 devices in us-central1-a",
]
READ_2020 = [
    "5 on-demand v2-8 devices in us-central1-f",
    "100 spot v2-8 devices in us-central1-f",
    "5 on-demand v3-8 devices in europe-west4-a",
]
READ_2026 = [
    "32 spot v4 chips in us-central2-b",
    "32 on-demand v4 chips in us-central2-b",
    "64 spot v5e chips in europe-west4-b",
    "64 spot v5e chips in us-central1-a",
    "64 spot v6e chips in europe-west4-a",
    "64 spot v6e chips in us-east1-d",
]
FACTS = Facts("my-tpu-project", "123456789012", "2026-09-03", "my-tpu-bucket")


def letter(rows: list[str], term: str, bullet: str = "  * ") -> str:
    """The text of a mail around the rows, as one person got it."""
    listed = "\n".join(bullet + row for row in rows)
    return (
        f"Hi there,\n\nYour project my-tpu-project now has access to Cloud TPUs for {term}, free of charge:\n\n"
        f"{listed}\n\n"
        "Only Cloud TPUs created in these zones are free. Other Google Cloud services are billed; new accounts have\n"
        "300 USD of credit. We will write again 7 days and 1 day before the end. v2-8 and v3-8 devices cannot form\n"
        "pods. If you have on-demand quota, please use it before you fall back to preemptible TPUs.\n\nHave fun!"
    )


def read(text: str) -> list[str]:
    """The rows of a letter that leaves no doubt."""
    found = read_letter(text, GENERATIONS)
    assert found.unparsed == ()
    return [str(row) for row in found.allowances]


@pytest.mark.parametrize(
    ("rows", "term", "days", "expected"),
    [
        (ROWS_2019, "30 days", 30, READ_2019),
        (ROWS_2020, "31 days", 31, READ_2020),
        (ROWS_2020, "60 days", 60, READ_2020),
        (ROWS_2026, "90 days", 90, READ_2026),
        (ROWS_2026, "180 days", 180, READ_2026),
    ],
    ids=["2019-11", "2020-21", "2022-23", "2026-05", "2026-09-03"],
)
def test_known_letters_are_read(rows: list[str], term: str, days: int, expected: list[str]) -> None:
    """Every letter that is known is read to its last row, with its term, and its prose is no row."""
    text = letter(rows, term)
    assert (read(text), read_letter(text, GENERATIONS).days) == (expected, days)


def test_letter_without_counts_is_reported() -> None:
    """Rows that were passed on without their counts (2024) are not guessed."""
    rows = ["preemptible Cloud TPU v2-8 in zone us-central1-f", "preemptible and on-demand Cloud TPU v4, us-central2-b"]
    found = read_letter("\n\n".join(rows), GENERATIONS)
    assert found.allowances == ()
    assert [(one.text, one.reason) for one in found.unparsed] == [
        (" ".join(rows), "not worded like a row: no count, no unit")
    ]


ROW = "64 spot Cloud TPU v6e chips in zone us-east1-d"
PASTED = {
    "a line break in the middle": "64 spot Cloud TPU v6e\n   chips in zone us-east1-d",
    "a line break in the zone": "64 spot Cloud TPU v6e chips in zone us-\neast1-d",
    "a quoted reply": "> > 64 spot Cloud TPU\n> > v6e chips in zone\n> > us-east1-d",
    "no-break spaces": "64\u00a0spot\u00a0Cloud\u00a0TPU\u00a0v6e chips in\u202fzone us-east1-d",
    "no-break hyphens": "64 spot Cloud TPU v6e chips in zone us\u2011east1\u2013d",
    "a soft hyphen and a zero-width space": "64 spot Cloud TPU v6e chi\u00adps in zone us-east1\u200b-d",
    "full-width forms": "６４ spot Cloud TPU ｖ６ｅ chips in zone us-east1-d",
    "Markdown": "* **64** spot Cloud TPU **v6e** chips in zone `us-east1-d`",
    "a numbered list": "3. 64 spot Cloud TPU v6e chips in zone us-east1-d",
    "a bullet and a full stop": "• 64 spot Cloud TPU v6e chips in zone us-east1-d.",
    "a bullet of a word processor": "\uf0b7\t64 spot Cloud TPU v6e chips in zone us-east1-d",
    "HTML": "<ul><li><b>64</b>&nbsp;spot Cloud TPU <i>v6e</i> chips<br/>in zone us&#8209;east1-d</li></ul>",
    "a table": "<tr><td>64</td><td>spot Cloud TPU v6e chips</td><td>in zone us-east1-d</td></tr>",
    "hidden parts of HTML": "<style>li {}</style><!-- 1 spot --><p>64 spot Cloud TPU v6e chips in zone us-east1-d</p>",
    "quoted-printable": "64 spot Cloud=20TPU v6e chi=\nps in zone us-east1-d",
    "capitals": "64 Spot Cloud TPU V6E Chips in Zone US-EAST1-D",
    "the singular": "64 spot Cloud TPU v6e chip(s) in the zone us-east1-d",
    "Korean around it": "다음 구역에서 무료로 쓸 수 있습니다: 64 spot Cloud TPU v6e chips in zone us-east1-d 입니다.",
    "Korean glued to it": "총64 spot Cloud TPU v6e chips in zone us-east1-d를 쓸 수 있습니다.",
    "Japanese glued to it": "無料枠:64 spot Cloud TPU v6e chips in zone：us-east1-dです。",
    "Chinese glued to it": "可以免费使用，64 spot Cloud TPU v6e chips in zone us-east1-d，祝好。",
    "a link of Markdown": "64 spot [Cloud TPU](https://cloud.google.com/tpu) v6e chips in zone us-east1-d",
    "a link of HTML": '64 spot <a href="https://cloud.google.com/tpu">Cloud TPU</a> v6e chips in zone us-east1-d',
    "a link of plain text": "64 spot Cloud TPU (https://cloud.google.com/tpu) v6e chips in zone us-east1-d",
    "HTML that was escaped": "&lt;li&gt;64 spot Cloud TPU v6e chips in zone us-east1-d&lt;/li&gt;",
    "Arabic around it": "\u202bيمكنك استخدام\u202c 64 spot Cloud TPU v6e chips in zone us-east1-d",
    "a control character": "64 spot\x07 Cloud TPU v6e chips in zone us-east1-d\x00",
    "twice": f"{ROW}\n\n<html><p>{ROW}</p></html>",
}


@pytest.mark.parametrize("text", PASTED.values(), ids=PASTED.keys())
def test_row_survives_how_it_was_pasted(text: str) -> None:
    """A row is the same row whatever a mail program, a browser or a word processor made of it."""
    assert read(text) == ["64 spot v6e chips in us-east1-d"]


def test_rows_in_one_sentence_are_told_apart() -> None:
    """In a running text of a language without spaces each row is read, whatever punctuation joins them."""
    first, second, third, fourth = (ROWS_2026[number] for number in (0, 1, 2, 5))
    text = f"可以在90天内使用：{first}，{second}、{third},{fourth}。"
    assert read(text) == [READ_2026[0], READ_2026[1], READ_2026[2], READ_2026[5]]


def test_row_without_a_tier_is_on_demand() -> None:
    """Letters name the tier only where it is not the usual one; a thousands separator is no second number."""
    assert read("1,024 Cloud TPU v2-8 device(s) in zone us-central1-f") == [
        "1024 on-demand v2-8 devices in us-central1-f"
    ]
    assert read("5 on demand Cloud TPU v3-8 devices in zone us-central1-a")[0].startswith("5 on-demand")


UNREAD = {
    "64 spot Cloud TPU v9x chips in zone us-east1-d": "'v9x': is unknown",
    "5 on-demand Cloud TPU v3-32 device(s) in zone us-central1-a": "devices cannot form pods",
    "64 spot Cloud TPU v6e devices in zone us-east1-d": "devices need a type",
    "0 spot Cloud TPU v6e chips in zone us-east1-d": "must be from 1",
    "64 spot Cloud TPU v6e chips in region us-east1": "not worded like a row",
    "64 spot Cloud TPU v6e chips": "no zone",
    "64 spot Cloud TPU\nv6e\nchips": "no zone",
    "64 preemptable Cloud TPU v6e chips in zone us-east1-d": "no tier",
    "v6e: 64 spot chips, us-east1-d": "no TPU",
    "16 spot Cloud TPU7x chips in zone us-central1-c": "no TPU",
    "10 free v3-8": "no tier, no TPU, no unit, no zone",
    "Preemptible:\n100 Cloud TPU v2-8 device(s) in zone us-central1-f": "'Preemptible' stands beside it",
    "100 Cloud TPU v2-8 device(s) in zone us-central1-f (spot)": "'spot' stands beside it",
    "선점형 100 Cloud TPU v2-8 device(s) in zone us-central1-f": "'선점' stands beside it",
    "64 spot Cloud TPU v6e chips in zone us-east1-d-x": "no zone",
    "us-central1-f 영역의 선점형 Cloud TPU v2-8 기기 100대": "no tier, no unit",
    "在us-central1-f区域中有100个抢占式Cloud TPU v2-8设备": "no tier, no unit",
}


@pytest.mark.parametrize(("text", "reason"), UNREAD.items())
def test_what_looks_like_a_row_is_never_dropped(text: str, reason: str) -> None:
    """A row that is not understood is handed back with the reason, and the good row beside it is read."""
    found = read_letter(f"{letter([ROW], '90 days')}\n\n{text}\n\nBest regards", GENERATIONS)
    assert [str(row) for row in found.allowances] == ["64 spot v6e chips in us-east1-d"]
    assert len(found.unparsed) == 1
    assert reason in str(found.unparsed[0])


def test_repeated_rows_are_merged_and_said() -> None:
    """The same row twice counts once; with two counts the smaller is taken, and a note says so."""
    other = ROW.replace("spot", "on-demand")
    found = read_letter("\n".join([ROW, ROW, ROW.replace("64", "32"), other, other]), GENERATIONS)
    assert [str(row) for row in found.allowances] == [
        "32 spot v6e chips in us-east1-d",
        "64 on-demand v6e chips in us-east1-d",
    ]
    assert "with the counts 32 and 64: 32 was taken" in found.notes[0]
    assert "is given 2 times" in found.notes[1]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("for 90 days, and 7 days before its end", 90),
        ("a 30-day grant", 30),
        ("für 60 Tage", 60),
        ("pendant 180 jours", 180),
        ("durante 90 días", 90),
        ("90 日間の利用", 90),
        ("2026년 9월 30일부터 90일간", 90),
        ("2026年9月30日から90日間", 90),
        ("您的项目可以在90天内使用", 90),
        ("на 90 дней", 90),
        ("на 90 днів", 90),
        ("90 gün boyunca", 90),
        ("90 günlük süre", 90),
        ("por 180 dias", 180),
        ("na 60 dní", 60),
        ("למשך 90 ימים", 90),
        ("لمدة ٩٠ يوما", 90),
        ("90 दिनों के लिए", 90),
        ("เป็นเวลา90วัน", 90),
        ("for 30 days; 60 days more after your feedback", None),
        ("for six months", None),
        ("until further notice", None),
        ("within 7 days", None),
    ],
)
def test_term_is_read_where_it_is_stated(text: str, days: int | None) -> None:
    """A single number of days is the term; several, months or none are left to a person, with a note."""
    found = read_letter(text, GENERATIONS)
    assert found.days == days
    assert bool(found.notes) == (days is None)


def written(found: Letter, **more: Any) -> Grant:
    """The grant as it is read back from the file that was written."""
    facts = Facts(**{**vars(FACTS), **more})
    return Grant.parse(yaml.safe_load(grant_text(grant_of(found, facts, GENERATIONS), found)), GENERATIONS)


def test_written_file_is_read_back() -> None:
    """The file holds the letter and what was given beside it; an explicit term outweighs the letter's."""
    found = read_letter(letter(ROWS_2020, "30 days"), GENERATIONS)
    assert written(found) == grant_of(found, FACTS, GENERATIONS)
    assert [str(row) for row in written(found).allowances] == READ_2020
    assert (written(found).days, written(found, days=90).days) == (30, 90)


@pytest.mark.parametrize(
    "odd",
    [
        {"bucket": "2026-01-01"},
        {"bucket": "123456"},
        {"bucket": "null"},
        {"project_id": "example.com:my-project"},
        {"start": "2026-09-03T14:00:00"},
        {"start": "2026-09-03T00:00:00+09:00"},
        {"timezone": "Asia/Seoul"},
    ],
    ids=str,
)
def test_odd_values_survive_yaml(odd: dict[str, str]) -> None:
    """What YAML would take for a date, a number or nothing comes back as what it was."""
    found = read_letter(letter(ROWS_2026, "90 days"), GENERATIONS)
    assert written(found, **odd) == grant_of(found, Facts(**{**vars(FACTS), **odd}), GENERATIONS)


def test_doubts_are_kept_in_the_file() -> None:
    """What was not understood stands in the file as a comment beside the rows."""
    found = read_letter(
        f"{letter([ROW, ROW], '90 days')}\n64 spot Cloud TPU\x07 v9x chips in zone us-east1-d", GENERATIONS
    )
    text = grant_text(grant_of(found, FACTS, GENERATIONS), found)
    assert "# NOT UNDERSTOOD, and so not free: '64 spot Cloud TPU v9x chips in zone us-east1-d'" in text
    assert "# Note: '64 spot v6e chips in us-east1-d' is given 2 times" in text


def test_every_fault_is_named_at_once() -> None:
    """A wrong number, an impossible start and a missing term are one error."""
    found = read_letter(ROW, GENERATIONS)
    with pytest.raises(GrantError) as caught:
        grant_of(found, Facts("123456", "my-project", "3 September", "gs://x/y"), GENERATIONS)
    assert {fault.field for fault in caught.value.faults} == {"project_id", "project_number", "start", "bucket", "days"}


def test_letter_without_rows_is_refused() -> None:
    """A mail without one row makes no grant, and the error shows what a row looks like."""
    with pytest.raises(GrantError, match="64 spot Cloud TPU v6e chips in zone us-east1-d"):
        grant_of(read_letter("Thank you for your interest in TPUs.", GENERATIONS), FACTS, GENERATIONS)


counts = st.integers(1, 9999)
zones = st.sampled_from(["us-central1-f", "us-central1-a", "us-central2-b", "europe-west4-b", "us-east1-d"])
tiers = st.sampled_from([("spot ", "spot"), ("preemptible ", "spot"), ("on-demand ", "on-demand"), ("", "on-demand")])
kinds = st.sampled_from(
    [("v2-8", "device(s)"), ("v3-8", "devices"), ("v4", "chips"), ("v5e", "chips"), ("v6e", "chip(s)")]
)
gaps = st.sampled_from([" ", "  ", "\n", "\r\n", "\u00a0", "\n> ", " \t ", "&nbsp;", "<b> ", " </span>"])
separators = st.sampled_from(["\n* ", "\n\n- ", "<br>", "</li><li>", "\n1) ", "; and\n", "\n• "])


@settings(max_examples=200)
@given(st.lists(st.tuples(counts, tiers, kinds, zones), min_size=1, max_size=8), st.data())
def test_any_rows_in_any_dress_are_read(rows: list[tuple[int, Any, Any, str]], data: st.DataObject) -> None:
    """Whatever rows a letter has, and however their words are spaced, each pool is read once."""
    pools: dict[tuple[str, str, str], int] = {}
    text = "Hello,"
    for count, (tier, pool), (kind, unit), zone in rows:
        words = f"{count} {tier}Cloud TPU {kind} {unit} in zone {zone}".split(" ")
        text += data.draw(separators) + "".join(word + data.draw(gaps) for word in words[:-1]) + words[-1]
        key = (pool, kind, zone)
        pools[key] = min(count, pools.get(key, count))
    names = {"devices": "devices", "device(s)": "devices", "chips": "chips", "chip(s)": "chips"}
    units = {kind: names[unit] for _, _, (kind, unit), _ in rows}
    assert sorted(read(text)) == sorted(f"{n} {t} {k} {units[k]} in {z}" for (t, k, z), n in pools.items())


@given(st.text() | st.text(alphabet="0123456789 spotclaudTPUv2-8vei()\n<>&;=,.us-central1", max_size=300))
def test_any_text_is_survived(text: str) -> None:
    """No text, however odd, ends in anything but a letter."""
    assert isinstance(read_letter(text, GENERATIONS), Letter)
