# SPDX-License-Identifier: Apache-2.0
"""A local cloud behind the page, and Airflow's own application around it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_tpu.hooks.artifacts import ArtifactsHook
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud
from tests.airflow_tpu.ui.chromium import pictures
from tests.airflow_tpu.ui.invented import BUCKET, Project

# Long enough for the algorithm that Airflow signs tokens with; its own random default is not, and warns.
os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = "only for these tests, " * 4


@contextmanager
def empty_project(folder: Path) -> Iterator[Project]:
    """A local cloud with nothing in it, to which the connection of this process leads until the block ends."""
    config = LocalCloudConfig(folder, tier="inprocess", buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as cloud, pytest.MonkeyPatch.context() as patch:
        ends = cloud.endpoints
        extra = {
            "project": ends.project_id,
            "is_anonymous": True,
            "tpu_api_endpoint": ends.tpu_api_endpoint,
            "tpu_insecure": True,
            "storage_api_endpoint": ends.storage_api_endpoint,
        }
        connection = {"conn_type": "google_cloud_platform", "extra": extra}
        patch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
        yield Project(cloud, ArtifactsHook())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """An empty project for all tests of a file."""
    with empty_project(tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Project]:
    """An empty project for one test."""
    with empty_project(tmp_path / "cloud") as made:
        yield made


@pytest.fixture(scope="session")
def out() -> Path:
    """Where screenshots go."""
    return pictures()
