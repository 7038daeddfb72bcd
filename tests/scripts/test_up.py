# SPDX-License-Identifier: Apache-2.0
"""make up and make down: a whole Airflow in separate processes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.scripts.whole_chain import TIMEOUT, Place, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * TIMEOUT)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place of its own, brought down whatever the test does."""
    place = Place(tmp_path, free_port())
    yield place
    place.run("down")


def listening(place: Place) -> set[str]:
    """Addresses on which processes of this place accept connections."""
    ours = {process.pid for process in psutil.process_iter() if place.owns(process)}
    connections = psutil.net_connections("inet")
    found = [item.laddr for item in connections if item.status == psutil.CONN_LISTEN and item.pid in ours]
    return {address.ip for address in found if address}


def test_airflow_comes_up_on_loopback_only_and_goes_down_without_a_trace(place: Place) -> None:
    """Every part reports healthy and listens on this machine only, a second call changes nothing, down ends it all."""
    first = place.run("up")
    assert first.returncode == 0, first.stdout[-6000:]
    url = f"http://127.0.0.1:{place.port}/api/v2/monitor/health"
    with urllib.request.urlopen(url, timeout=240) as answer:
        assert {part["status"] for part in json.load(answer).values()} == {"healthy"}
    assert {address.removeprefix("::ffff:").split(".")[0] for address in listening(place)} == {"127"}
    assert "already up" in place.run("up").stdout
    down = place.run("down")
    assert (down.returncode, place.survivors()) == (0, []), down.stdout
