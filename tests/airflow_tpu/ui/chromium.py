# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run it until the block ends, which has to do so in the thread that it began in.

    :raises AssertionError: no Chromium is installed.
    """
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    assert path, "This test needs Chromium. Install it: apt-get install chromium (.ci/run does it)."
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield started
        started.close()


def pictures() -> Path:
    """Where screenshots go: ``SCREENSHOTS``, or the folder that CI keeps."""
    folder = Path(os.environ.get("SCREENSHOTS") or Path(__file__).parents[3] / ".ci" / "out")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
