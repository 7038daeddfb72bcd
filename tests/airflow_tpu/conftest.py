# SPDX-License-Identifier: Apache-2.0
"""The product's hooks against a real local cloud, through the real Google and SSH clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from airflow_tpu.clients.ssh import Login
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.hooks.artifacts import ArtifactsHook
from localcloud.rules.settings import Latencies, Settings
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud
from tests.airflow_tpu.cloud_env import BUCKET, INCLUDE, CloudEnv
from tests.airflow_tpu.shipped import GENERATIONS

Open = Callable[..., CloudEnv]
QUICK = Latencies(waiting=0.02, creating=0.1, failing=0.05, deleting=0.02, suspending=0.05, changing=0.02)


@pytest.fixture(scope="session")
def login() -> Login:
    """A key pair of this test session."""
    return Login("trainer", asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())


@pytest.fixture(scope="session")
def grant() -> Grant:
    """The grant of the local cloud."""
    return Grant.parse(yaml.safe_load((INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")), GENERATIONS)


@pytest.fixture
def open_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: Login, grant: Grant) -> Iterator[Open]:
    """Start a local cloud with some settings; the connections of the process lead to the last one started."""
    with ExitStack() as stack:

        def start(tier: str = "inprocess", **settings: Any) -> CloudEnv:
            config = LocalCloudConfig(
                tmp_path / "cloud",
                Settings(**{"latencies": QUICK, **settings}),
                tier=tier,
                buckets={BUCKET: "US-CENTRAL1"},
            )
            cloud = stack.enter_context(BackgroundCloud(config))
            monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(cloud.endpoints.airflow_connection()))
            ssh = {"conn_type": "ssh", "login": login.user, "extra": {"private_key": login.private_key}}
            monkeypatch.setenv("AIRFLOW_CONN_TPU_SSH_DEFAULT", json.dumps(ssh))
            return CloudEnv(cloud, ArtifactsHook(), login, grant)

        yield start


@pytest.fixture
def env(open_env: Open) -> CloudEnv:
    """A local cloud with usual settings; its VMs are the cheapest there are."""
    return open_env()


@pytest.fixture
async def client(env: CloudEnv) -> AsyncIterator[TPUClient]:
    """The product's client, connected, with short time limits."""
    async with env.client() as connected:
        yield connected
