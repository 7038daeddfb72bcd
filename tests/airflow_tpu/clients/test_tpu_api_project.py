# SPDX-License-Identifier: Apache-2.0
"""Projects that lack something, and organisations that forbid: the refusal, and the error with its advice."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu import errors
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.tpu.api_errors import classify
from airflow_tpu.core.tpu.resource_name import ResourceName
from localcloud.rules.project import EXTERNAL_IP, GUEST_ATTRIBUTES, ProjectRules
from localcloud.testing import eventually_async
from tests.airflow_tpu.cloud_env import PARENT, CloudEnv
from tests.airflow_tpu.conftest import Open

NODE = ResourceName.parse(f"{PARENT}/nodes/n-1")
QUEUED = ResourceName.parse(f"{PARENT}/queuedResources/n-1")
NO_EXTERNAL_IP = ProjectRules(constraints=frozenset({EXTERNAL_IP}))
OTHER_NETWORK = ProjectRules(networks=frozenset({"shared"}))
NO_ACCOUNT = ProjectRules(default_account=False)


@pytest.mark.parametrize(
    ("rules", "advice"),
    [
        (ProjectRules(perimeter=True), "A VPC Service Controls perimeter stops the call"),
        (ProjectRules(billing=False), "Link the project to an open billing account"),
        (ProjectRules(quota_project=False), "gcloud auth application-default set-quota-project"),
    ],
)
async def test_every_call_is_refused(open_env: Open, rules: ProjectRules, advice: str) -> None:
    """A list ends at once with the advice that helps, which is no other zone and no role."""
    env = open_env(project=rules)
    async with env.client() as client:
        with pytest.raises(errors.AccessDenied, match=advice):
            await client.nodes()


FORBIDDEN = [
    (NO_EXTERNAL_IP, errors.AccessDenied, "Set internal_ips", {"internal_ips": True}),
    (OTHER_NETWORK, errors.ConfigError, "network = ''", {"network": "projects/host/global/networks/shared"}),
    (NO_ACCOUNT, errors.ConfigError, "service_account = ''", {"service_account": "vm@p.iam.gserviceaccount.com"}),
]


async def refusal(env: CloudEnv, client: TPUClient, queued: bool) -> errors.TPUError:
    """What becomes of a create that was accepted."""
    operation = await env.create(client, queued=queued)
    if not queued:
        error = (await eventually_async(lambda: client.operation(operation), lambda found: found.done)).error
        assert error is not None
        return error
    failed = await eventually_async(lambda: client.queued_resource(QUEUED), lambda found: found.state == "FAILED")
    return classify(failed.error_code, failed.error_message)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(("rules", "leaf", "words", "cure"), FORBIDDEN, ids=["external-ip", "network", "account"])
async def test_what_compute_engine_refuses_names_the_field(
    open_env: Open, rules: ProjectRules, leaf: type[errors.TPUError], words: str, cure: dict[str, Any], queued: bool
) -> None:
    """The refusal comes after the create was accepted; the field that the error names makes the same create work."""
    env = open_env(project=rules)
    async with env.client() as client:
        error = await refusal(env, client, queued)
        assert type(error) is leaf
        assert words in str(error)
        if not queued:
            operation = await env.create(client, **cure)
            done = await eventually_async(lambda: client.operation(operation), lambda found: found.done)
            assert done.error is None
            assert list(env.nodes()) == ["n-1"]


async def test_forbidden_guest_attributes_hide_the_host_keys(open_env: Open) -> None:
    """The TPU is used all the same: a worker whose key is not published is trusted at first sight, which is logged."""
    env = open_env(project=ProjectRules(constraints=frozenset({GUEST_ATTRIBUTES})))
    async with env.client() as client:
        operation = await env.create(client)
        await eventually_async(lambda: client.operation(operation), lambda found: found.done)
        assert await client.host_keys(NODE) == {}
