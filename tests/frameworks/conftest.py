# SPDX-License-Identifier: Apache-2.0
"""Buckets for trainings that save with their framework's own means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.gcs.tls.proxy import TLSFront
from tests.remote.checkpoint_server import CheckpointServer


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[CheckpointServer]:
    """An empty bucket."""
    with CheckpointServer(tmp_path / "gcs") as running:
        yield running


@pytest.fixture
def front(bucket: CheckpointServer, tmp_path: Path) -> Iterator[TLSFront]:
    """What leads the ``gs://`` of TensorFlow to the bucket."""
    front = TLSFront(tmp_path / "tls", bucket.url)
    bucket.run(front.start())
    yield front
    bucket.run(front.close())
