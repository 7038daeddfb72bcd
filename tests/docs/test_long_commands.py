# SPDX-License-Identifier: Apache-2.0
"""The commands of the documentation that take long: an Airflow of one's own, its database, a whole training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.listing import script_of
from tests.docs.pages import BY_PAGE, QUICKSTART
from tests.docs.reading import Reader, judge
from tests.scripts.whole_chain import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


def test_the_quickstart_ends_with_a_training(tmp_path: Path) -> None:
    """Typed from top to bottom, the page gives an Airflow that trains its script on a TPU of the local cloud."""
    reader = Reader(tmp_path, port=free_port())
    reader.copy()
    done = reader.follow(QUICKSTART, BY_PAGE[QUICKSTART], tmp_path, long=True)
    judge(done, [command for command in BY_PAGE[QUICKSTART] if script_of(command, long=True)])


@pytest.mark.parametrize("page", ["docs/ledger.md", "include/train/README.md"])
def test_a_page_does_all_that_it_says(page: str, reader: Reader) -> None:
    """The ledger is read and compared with the audit log, and the complete script learns its digits by hand."""
    judge(reader.follow(page, BY_PAGE[page], reader.clone, long=True), BY_PAGE[page])
