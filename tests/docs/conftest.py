# SPDX-License-Identifier: Apache-2.0
"""A reader who has installed the package by following the quickstart."""

from __future__ import annotations

import pytest

from tests.docs.pages import BY_PAGE, QUICKSTART
from tests.docs.reading import Done, Reader


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, list[Done]]:
    """The quickstart as far as no server is needed, once per process: the reader, and what was typed."""
    reader = Reader(tmp_path_factory.mktemp("reader"))
    reader.copy()
    return reader, reader.follow(QUICKSTART, BY_PAGE[QUICKSTART], reader.folder)


@pytest.fixture
def reader(quickstart: tuple[Reader, list[Done]], tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The same one, before another page, with a fresh copy."""
    reader = Reader(tmp_path_factory.mktemp("page"), quickstart[0].clone / ".airflow" / "venv" / "bin")
    reader.copy()
    return reader
