# SPDX-License-Identifier: Apache-2.0
"""Many runs in one process: they share one client of Google's, and no run takes it away from another."""

from __future__ import annotations

import asyncio

import pytest
from google.auth.credentials import AnonymousCredentials
from google.oauth2.credentials import Credentials

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint
from tests.airflow_tpu.cloud_env import CloudEnv


async def test_all_of_a_loop_share_one_client(env: CloudEnv) -> None:
    """A hundred runs open one connection; it serves the last of them when the others have gone."""
    async with env.client() as last:
        for _ in range(2):  # as well after all others have been closed once
            others = [env.client() for _ in range(100)]
            for other in others:
                await other.__aenter__()
            assert {other.calls.client for other in others} == {last.calls.client}
            await asyncio.gather(*(other.__aexit__(None, None, None) for other in others))
            assert (await last.nodes()).items == ()
    with pytest.raises(RuntimeError, match="async with"):
        _ = last.calls.client


async def test_new_client_follows_the_last_one(env: CloudEnv) -> None:
    """When nobody uses it any more it is closed, and the next run opens another one that works."""
    async with env.client() as first:
        before = first.calls.client
    async with env.client() as second:
        assert second.calls.client is not before
        assert (await second.nodes()).items == ()


async def test_each_account_has_a_client_of_its_own(env: CloudEnv) -> None:
    """What is asked for as somebody else, or of another project, never goes through the same client."""
    address = env.cloud.endpoints.tpu_api_endpoint
    endpoints = [
        APIEndpoint("p", AnonymousCredentials(), address, True),
        APIEndpoint("other", AnonymousCredentials(), address, True),
        APIEndpoint("p", Credentials("token", refresh_token="a"), address, True),
        APIEndpoint("p", Credentials("token", refresh_token="b"), address, True),
    ]
    clients = [TPUClient(endpoint) for endpoint in endpoints]
    for client in clients:
        await client.__aenter__()
    assert len({client.calls.client for client in clients}) == len(clients)
    await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))


def test_loops_share_nothing(env: CloudEnv) -> None:
    """A channel belongs to its event loop: the next loop of the process opens its own."""

    async def ask() -> int:
        async with env.client() as client:
            await client.nodes()
            return id(client.calls.client)

    for _ in range(3):
        asyncio.run(ask())
