# SPDX-License-Identifier: Apache-2.0
"""The line that accepts a bill, and texts that give no reason."""

from __future__ import annotations

import pytest

from airflow_tpu.core.request.consent import Consent, reason
from airflow_tpu.core.request.fields import Invalid

HEAD = (
    "at most 12.40 USD a run until 2026-12-24T18:00Z for spot v3-8 in us-central1-a of p, traffic with gs://a/b in EU"
)
LINE = f"{HEAD} because it is due, because of Friday"


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE.replace("at most 12.40 USD", "at most 12.40 USD and an unknown amount"),
        LINE.replace("at most 12.40 USD", "an unknown amount"),
    ],
)
def test_a_line_is_read_as_it_is_written(line: str) -> None:
    """What is paid for, the amount, the end and the reason survive; the reason may have the same words."""
    consent = Consent.parse(line)
    assert consent is not None
    assert str(consent) == line
    assert consent.reason == "it is due, because of Friday"
    assert consent.unknown is ("unknown" in line)


@pytest.mark.parametrize(
    "line",
    [
        "it is due",
        LINE.replace("at most", "up to"),
        LINE.replace("12.40", "1e9"),
        LINE.replace("12.40", "any"),
        LINE.replace("2026-12-24T18:00Z", "2026-12-24T18:00"),
        LINE.replace("2026-12-24T18:00Z", "ever"),
        LINE.replace("at most 12.40 USD ", ""),
        HEAD,
    ],
)
def test_another_text_accepts_nothing(line: str) -> None:
    """A text without an amount, an end with its timezone, or a reason is no consent."""
    assert Consent.parse(line) is None


def test_items_are_whole() -> None:
    """A line for one thing is not about another whose name is longer or shorter."""
    consent = Consent.parse(LINE)
    assert consent is not None
    assert consent.names("spot v3-8 in us-central1-a of p")
    assert consent.names("traffic with gs://a/b in EU")
    assert not consent.names("spot v3-8 in us-central1-a")
    assert not consent.names("traffic with gs://a/b in EUROPE-WEST4")


NOTHING_SAID = [
    "no",
    "No.",
    "-",
    "n/a",
    "N / A",
    " ",
    "\u200b",
    "\u2060 \ufeff",
    "\u3164",
    "\u2800",
    "...",
    "?",
    "x",
    "xxx",
]
NOTHING_SAID += [
    "none",
    "no, thanks",
    "do not pay",
    "yes",
    "ok",
    "1",
    "123",
    "___",
    "nein",
    "нет",
    "无",
    "🙂",
    "no reason given",
]


@pytest.mark.parametrize("given", NOTHING_SAID)
def test_what_gives_no_reason(given: str) -> None:
    """A no, a yes, a sign and what cannot be seen are refused, alone and at the end of a line that accepts a bill."""
    for value in (given, f"{HEAD} because {given}"):
        with pytest.raises(Invalid, match="say in a few words why money may be spent, or leave the field empty"):
            reason(value)


@pytest.mark.parametrize(
    "given", ["it is due", "no VPN here", "demo", "期限", "締め切り", "마감", "срок", "only 2 MB", ""]
)
def test_what_is_taken(given: str) -> None:
    """A few words in any language are a reason, and an empty field pays for nothing."""
    assert reason(f" {given} " if given else "") == given
    assert reason(f"{HEAD} because due on Friday") == f"{HEAD} because due on Friday"
