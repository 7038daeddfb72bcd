# SPDX-License-Identifier: Apache-2.0
"""The commit that a DAG run trains: found once, and the same for each of its tasks, tries and incarnations."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from airflow_tpu.core import json_form


@dataclass(frozen=True)
class SourcePin:
    """What an address meant when a run first looked.

    :param address: as the form has it; another address of the same run has a pin of its own.
    :param commit: 40 hexadecimal digits.
    :param name: reference that named the commit, empty if the address did.
    :param at: when that was.
    """

    address: str
    commit: str
    name: str
    at: dt.datetime

    def __str__(self) -> str:
        named = (
            f", {self.name.removeprefix('refs/heads/').removeprefix('refs/tags/')} at {self.at:%Y-%m-%d %H:%M:%S} UTC"
        )
        return f"commit {self.commit} of {self.address}{named if self.name else ''}"


PIN_FORM = json_form.StoredForm("source of a run", SourcePin)
"""The object in the bucket."""
