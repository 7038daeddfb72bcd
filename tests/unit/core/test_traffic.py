"""The sentence about a bucket in another place."""

from __future__ import annotations

import pytest

from airflow_tpu.core.traffic import Below, sentence


@pytest.mark.parametrize(
    ("below", "said"),
    [
        (Below(120 * 10**9), "lie 111.8 GiB, and each pass"),
        (Below(5 * 1024**4, complete=False), "lie at least 5,120.0 GiB"),
        (Below(3 * 1024**2), "lie 0.0029 GiB"),
        (Below(0), "Nothing lies below this URI yet"),
        (None, "is unknown"),
    ],
)
def test_the_amount_is_said_as_far_as_it_is_known(below: Below | None, said: str) -> None:
    """A1: GiB of what is there; a part is a lower bound; unknown is neither nothing nor a guess."""
    assert said in sentence("EUROPE-WEST4", "US-CENTRAL1", below)


def test_no_price_is_invented() -> None:
    """A1: the only amount of money is that of the accident on record; the rate is left to Google's page."""
    text = sentence("EU", "EUROPE-WEST4", Below(1024**3))
    assert text.count("USD") == text.count("2,500 USD") == 1
    assert "is in multi-region EU" in text
    assert "https://cloud.google.com/storage/pricing" in text
