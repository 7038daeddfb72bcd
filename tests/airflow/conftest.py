# SPDX-License-Identifier: Apache-2.0
"""One Airflow of real processes and one local cloud for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud
from tests.airflow import variants
from tests.airflow.parallel_runs import ParallelRuns
from tests.airflow.runs import SCRIPT
from tests.airflow.settings import connections
from tests.airflow.stack import Stack
from tests.dags.evidence import BUCKET, upload


@pytest.fixture(scope="module")
def airflow_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCloud]:
    """A local cloud that has the script."""
    config = LocalCloudConfig(state_dir=tmp_path_factory.mktemp("cloud"), buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as cloud:
        script = Path(__file__).parent / "files" / "steady.py"
        assert upload(cloud, "scripts/steady.py", script.read_text(encoding="utf-8")) == SCRIPT
        yield cloud


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, airflow_cloud: BackgroundCloud) -> Iterator[Stack]:
    """Airflow, up and healthy; afterwards none of its processes is left."""
    dags = tmp_path_factory.mktemp("dags")
    variants.write(dags)
    with Stack(tmp_path_factory.mktemp("airflow"), dags, connections(airflow_cloud)) as running:
        yield running
    assert running.survivors() == []


@pytest.fixture(scope="module")
def runs(stack: Stack, airflow_cloud: BackgroundCloud, request: pytest.FixtureRequest) -> Iterator[ParallelRuns]:
    """The stories of all chosen tests; as many at once as keep two cores busy while they wait."""
    with ThreadPoolExecutor(8) as pool:
        runs = ParallelRuns(stack, airflow_cloud, pool)
        for item in request.session.items:
            story = getattr(getattr(item, "function", None), "story", None)
            if story is not None:
                runs.begin(item.name, *story)
        yield runs
