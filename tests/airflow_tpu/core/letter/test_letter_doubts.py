# SPDX-License-Identifier: Apache-2.0
"""Letters that leave a row in doubt: it is handed back with the reason, never read as the costlier one."""

from __future__ import annotations

import base64
import quopri

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.letter.grant_file import Facts, grant_of
from airflow_tpu.core.letter.letter import Letter, read_letter
from airflow_tpu.errors import GrantError
from tests.airflow_tpu.shipped import GENERATIONS

GIVEN = "16 spot Cloud TPU v5e chips in zone us-central1-a"
READ = ["16 spot v5e chips in us-central1-a"]
COSTLY = "8 on-demand Cloud TPU v4 chips in zone us-central2-b"
BARE = "4 Cloud TPU v6e chips in zone us-east1-d"
NOW = "Your project now has access to the following quota free of charge for 60 days:"
STRIKE = "\u0336"


def letter(text: str) -> Letter:
    """What is read of it."""
    return read_letter(text, GENERATIONS)


def rows(text: str) -> list[str]:
    """The rows that are certain."""
    return [str(row) for row in letter(text).allowances]


TIER_OUTSIDE = {
    "a heading": f"Preemptible quota:\n\n* {BARE}\n* {BARE.replace('v6e', 'v5e')}",
    "a heading with hashes": f"## Spot\n- {BARE}",
    "a heading over two groups": f"Spot TPUs\n\nAmerica:\n{BARE}",
    "the sentence above": f"The following quota is preemptible and free for 60 days:\n{BARE}",
    "the sentence below": f"{BARE}\n\nAll of these TPUs are preemptible.",
    "behind a dash": f"{BARE} - spot",
    "behind an en dash": f"{BARE} – preemptible",
    "behind an em dash without spaces": f"{BARE}—spot",
    "behind an equals sign": f"{BARE} = spot",
    "a cell of pipes": f"| {BARE} | spot |",
    "a cell of tabs": f"{BARE}\tspot",
    "a cell in front": f"spot\t{BARE}",
    "a cell of HTML": f"<table><tr><th>Quota</th><th>Tier</th></tr><tr><td>{BARE}</td><td>spot</td></tr></table>",
    "a column for each": f"| Quota | Tier |\n|---|---|\n| {BARE} | Spot VM |",
    "brackets": f"{BARE} [spot]",
    "in front of a colon": f"Spot: {BARE}",
    "Korean": f"다음은 스팟 할당량입니다.\n{BARE}",
    "Chinese": f"抢占式：\n{BARE}",
    "the row before": f"{GIVEN} and {BARE}",
    "zero-width spaces": f"s\u200bpot:\n{BARE}",
    "of two tiers": f"8 spot + {COSTLY}",
    "of two tiers behind": f"{COSTLY} and 8 spot",
    "a heading against the row": f"Preemptible:\n{COSTLY}",
    "a cell against the row": f"{COSTLY} | spot",
}


@pytest.mark.parametrize("text", TIER_OUTSIDE.values(), ids=TIER_OUTSIDE.keys())
def test_tier_outside_of_the_row_is_no_on_demand(text: str) -> None:
    """A tier that stands in a heading, a cell or behind a dash makes no on-demand row."""
    found = letter(text)
    assert not [row for row in found.allowances if row.tier == "on-demand"]
    assert found.unparsed


NOT_GIVEN = {
    "a lead": f"You no longer have access to:\n\n{COSTLY}",
    "a lead over two rows": f"The following is now billed at list price:\n* {COSTLY}\n* {COSTLY.replace('v4', 'v5p')}",
    "a heading": f"Denied:\n- {COSTLY}",
    "a heading and a smaller one": f"## Denied\n\n### us-central2\n\n{COSTLY}",
    "a column": f"| Quota | Status |\n|---|---|\n| {COSTLY} | denied |",
    "a column with no": f"{COSTLY}\tno",
    "a column with a cross": f"| {COSTLY} | ✗ |",
    "a column with zero": f"| {COSTLY} | 0 |",
    "a column in HTML": f"<tr><td>{COSTLY}</td><td>Rejected</td></tr>",
    "a column in German": f"| {COSTLY} | abgelehnt |",
    "a status": f"{COSTLY} - status: declined",
    "a status in brackets": f"{COSTLY} (expired)",
    "a status in front": f"[denied] {COSTLY}",
    "a relative clause": f"{COSTLY}, which was not approved.",
    "a clause on the next line": f"{COSTLY},\nwhich we could not grant.",
    "but not": f"You do not get {COSTLY}.",
    "does not include": f"It doesn't include {COSTLY}.",
    "asked for": f"You asked for {COSTLY}.",
    "asked for, as a heading": f"You requested:\n{COSTLY}",
    "under review": f"{COSTLY} (pending)",
    "an example": f"A row looks like this, for example:\n{COSTLY}",
    "previously": f"Previously granted:\n{COSTLY}",
    "until now": f"Until now you had {COSTLY}.",
    "instead of": f"This comes instead of {COSTLY}.",
    "afterwards": f"{COSTLY}\n\nUnfortunately, this row was denied.",
    "ended afterwards": f"{COSTLY}\n\nYour trial has ended.",
    "Korean": f"다음 요청은 거부되었습니다:\n{COSTLY}",
    "Chinese": f"以下配额已过期：\n{COSTLY}",
    "tildes": f"~~{COSTLY}~~",
    "a list of tildes": f"* ~~{COSTLY}~~",
    "overlaid strokes": STRIKE.join(COSTLY) + STRIKE,
    "s": f"<ul><li><s>{COSTLY}</s></li></ul>",
    "s around a list": f"<s><ul><li>{COSTLY}</li></ul></s>",
    "del": f"<del>{COSTLY}</del>",
    "a class": f'<style>.gone {{text-decoration: line-through}}</style><p class="gone">{COSTLY}</p>',
    "escaped": f"&lt;s&gt;{COSTLY}&lt;/s&gt;",
    "a date": f"{COSTLY} until 2021-05-01",
    "replaced": f"{COSTLY} is replaced.",
    "at a price": f"At the regular price:\n{COSTLY}",
    "later": f"From May on you will get:\n{COSTLY}",
    "an open box": f"[ ] {COSTLY}",
    "a style": f'<p style="color: red; text-decoration:line-through"><span>{COSTLY}</span></p>',
    "a style in capitals": f'<p STYLE="TEXT-DECORATION: LINE-THROUGH">{COSTLY}</p>',
    "not shown": f'<div style="display: none">{COSTLY}</div>',
    "not visible": f'<span style="visibility:hidden">{COSTLY}</span>',
    "hidden": f"<p hidden>{COSTLY}</p>",
    "a class that is not shown": f'<style>.x {{ display:none }}</style><p class="x">{COSTLY}</p>',
    "at a discount": f"At a discount:\n{COSTLY}",
    "at half the price": f"{COSTLY} (50% off)",
    "another project": f"Your colleague's project my-other-project has {COSTLY}.",
    "another account": f"Another Google account of yours has:\n{COSTLY}",
    "an older mail": f"{NOW}\n{GIVEN}\n\nOn Mon, Jan 4, 2021 at 8:00 AM TRC wrote:\n> {NOW}\n>\n> {COSTLY}",
    "an older mail without marks": f"{NOW}\n{GIVEN}\n\n-----Original Message-----\nFrom: TRC\nSent: 2021\n{COSTLY}",
    "an older mail in Korean": f"{NOW}\n{GIVEN}\n\n2021년 1월 4일 (월) TRC님이 작성:\n\n{COSTLY}",
    "an older mail in Chinese": f"{NOW}\n{GIVEN}\n\nTRC 于2021年1月4日周一写道：\n{COSTLY}",
    "an older mail in HTML": f"<p>{GIVEN}</p><blockquote><p>{COSTLY}</p></blockquote>",
    "a mail above that takes back": f"Your access has been revoked.\n\n> {NOW}\n> {COSTLY}",
}


@pytest.mark.parametrize("text", NOT_GIVEN.values(), ids=NOT_GIVEN.keys())
def test_what_is_not_given_is_no_row(text: str) -> None:
    """A row that is denied, struck out, asked for, ended or quoted from an older mail is handed back."""
    found = letter(text)
    assert not [row for row in found.allowances if row.generation == "v4"]
    assert any("v4" in one.text for one in found.unparsed)


@pytest.mark.parametrize("text", NOT_GIVEN.values(), ids=NOT_GIVEN.keys())
def test_what_is_given_beside_it_is_read(text: str) -> None:
    """The doubt of one row is none of another that is given below in words of its own."""
    if "older mail" not in text and ">" not in text and "-----" not in text and "afterwards" not in text:
        found = letter(f"{text}\n\n{NOW}\n\n* {GIVEN}\n")
        assert READ[0] in map(str, found.allowances) or "below" in str(found.unparsed)


def test_usual_letter_is_certain() -> None:
    """The advice around the rows of a usual letter casts no doubt on them."""
    text = f"""Thank you for applying! You requested TPUs last week.

    {NOW}

    {GIVEN}
    {COSTLY}
    This trial is for new TPUs in the zones above. While they are free, you are charged for other services.
    With both on-demand and preemptible quota, fall back to preemptible when on-demand is not available.
    Once your trial has ended, TPUs are billed."""
    assert rows(text) == [*READ, "8 on-demand v4 chips in us-central2-b"]


ENCODED = f"{NOW}\r\n\r\n{GIVEN}\r\n"
HEADERS = "Subject: TPUs\nMIME-Version: 1.0\n"
BASE64 = base64.encodebytes(ENCODED.encode()).decode()
QUOTED = quopri.encodestring(f"<p>{NOW}</p><p>{GIVEN.replace(' ', chr(160))}</p>".encode()).decode()
MAILS = {
    "base64": f"{HEADERS}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n{BASE64}",
    "base64 with a stray charset": f"{HEADERS}Content-Type: text/plain; charset=x-odd\n"
    f"Content-Transfer-Encoding: base64\n\n{BASE64}",
    "quoted-printable": f"{HEADERS}Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n{QUOTED}",
    "parts": f'{HEADERS}Content-Type: multipart/alternative; boundary="b1"\n\n--b1\nContent-Type: text/plain\n'
    f"Content-Transfer-Encoding: base64\n\n{BASE64}\n--b1\nContent-Type: text/html\n"
    f"Content-Transfer-Encoding: quoted-printable\n\n{QUOTED}\n--b1--\n",
    "parts without the headers above": f"--b1\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{BASE64}"
    "\n--b1--\n",
    "base64 alone": BASE64,
    "quoted-printable alone": QUOTED,
    "attached": f'{HEADERS}Content-Type: multipart/mixed; boundary="b2"\n\n--b2\nContent-Type: message/rfc822\n\n'
    f"{HEADERS}Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{BASE64}\n--b2--\n",
    "forwarded": f"전달합니다\n\n---------- Forwarded message ---------\nFrom: TRC\nDate: Thu\n\n{NOW}\n\n{GIVEN}",
    "a reply to the letter": f"Thank you!\n\nOn Thu TRC wrote:\n> {NOW}\n>\n> {GIVEN}",
    "not encoded": f"{HEADERS}Content-Type: text/plain; charset=euc-kr\n\n안녕하세요\n{NOW}\n{GIVEN}",
}


@pytest.mark.parametrize("text", MAILS.values(), ids=MAILS.keys())
def test_mail_is_decoded(text: str) -> None:
    """A mail that was saved as its source is read like its text."""
    assert (rows(text), letter(text).days, letter(text).unparsed) == (READ, 60, ())


@pytest.mark.parametrize(
    "text",
    [
        "Your access lasts two months. New accounts get credit for 90 days.",
        "New accounts get 300 USD of credit for 90 days.",
        "for 60 days (two months)",
        "for 12 weeks, and 60 days of support",
        "a year; the quota is looked at after 90 days",
        "for ninety days, of which 30 days are left",
        "Your term was extended by 30 days.",
        "Please respond within 30 days.",
        "~~90 days~~",
        "It was 90 days.",
    ],
)
def test_doubtful_term_is_asked_for(text: str) -> None:
    """A number of days that may be that of something else is no term."""
    found = letter(f"{text}\n\n{GIVEN}")
    assert found.days is None
    assert found.notes


def test_older_term_is_not_taken() -> None:
    """The term of a quoted mail is not that of the new one."""
    assert letter(f"{NOW}\n{GIVEN}\n\n> for 30 days:\n> {COSTLY}").days == 60
    assert letter(f"{GIVEN}\n\n> for 30 days:\n> {COSTLY}").days is None


def test_every_reason_is_printed_where_the_term_is_open() -> None:
    """A letter with two periods is refused with both, with each row that was not understood, and with wrong facts."""
    found = letter(
        f"Your access lasts three months. New accounts get credit for 90 days.\n\n{GIVEN}\n[denied] {COSTLY}"
    )
    with pytest.raises(GrantError) as caught:
        grant_of(found, Facts("my-tpu-project", "12 34", "2026-09-03", "my-bucket"), GENERATIONS)
    text = str(caught.value)
    assert {fault.field for fault in caught.value.faults} == {"letter", "days", "project_number"}
    assert "speaks of 90 days and 'three months'" in text
    assert "NOT UNDERSTOOD: has 'denied' beside it" in text


def test_every_reason_is_printed() -> None:
    """A letter without a certain row is refused with each row that was found."""
    with pytest.raises(GrantError) as caught:
        grant_of(
            letter(f"Denied:\n{COSTLY}\n{BARE} - spot"), Facts("a-project", "123456", "2026-09-03", "b"), GENERATIONS
        )
    assert "stands below 'Denied'" in str(caught.value)
    assert "'spot' stands beside it" in str(caught.value)


ROWS = [
    (f"{count} {tier}Cloud TPU {kind} in zone {zone}", f"{count} {tier}{kind} in {zone}")
    for count in (4, 8)
    for tier in ("spot ", "on-demand ", "")
    for kind, zone in (("v4 chips", "us-central2-b"), ("v6e chips", "us-east1-d"))
]
MARKS = st.sampled_from(["\n", "\n\n", "> ", "\t", " - ", " | ", "(", ", ", ". ", "~~", "<s>", "</s>", "<td>", "=\n"])
WORDS = st.sampled_from(["spot", "preemptible", "on-demand", "denied", "8 ", "and ", "Denied:\n", "was ", "스팟"])


@settings(max_examples=300)
@given(st.lists(st.sampled_from(ROWS) | MARKS | WORDS, max_size=12))
def test_no_row_is_read_that_the_letter_does_not_state(pieces: list[str | tuple[str, str]]) -> None:
    """Whatever is mixed in, a row that is read is stated word for word, and no bare one beside a word for spot."""
    text = "\n".join(piece if isinstance(piece, str) else piece[0] for piece in pieces)
    stated = {piece[1] for piece in pieces if not isinstance(piece, str)}
    speaks_of_spot = any(isinstance(piece, str) and ("spot" in piece or "preempt" in piece) for piece in pieces)
    for row in rows(text):
        bare = row.replace("on-demand ", "")
        assert row in stated or (bare in stated and not speaks_of_spot)
