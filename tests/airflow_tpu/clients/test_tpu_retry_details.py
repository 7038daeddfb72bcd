# SPDX-License-Identifier: Apache-2.0
"""The typed details of Google's answers, which may hold the only text that names what is wrong."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2 as rpc

from airflow_tpu.clients.tpu_retry import details_in_words
from airflow_tpu.errors import QuotaExceeded
from tests.airflow_tpu.conftest import Open


def test_details_are_shown_as_google_words_them() -> None:
    """Violations, messages and links are read, packed or not; ids and delays say nothing to a person."""
    bad, quota, link = rpc.BadRequest(), rpc.QuotaFailure(), rpc.Help()
    bad.field_violations.add(field="node.accelerator_type", description="v9-8 is no type")
    quota.violations.add(subject="zone x", description="Quota TPUV2s exhausted")
    link.links.add(description="Quotas", url="https://cloud.google.com/tpu/docs/quota")
    packed = Packed()
    packed.Pack(bad)
    told = rpc.LocalizedMessage(message="Nein")
    found = details_in_words([packed, quota, link, rpc.RequestInfo(request_id="1"), told])
    assert found == (
        "node.accelerator_type: v9-8 is no type; zone x: Quota TPUV2s exhausted; "
        "Quotas: https://cloud.google.com/tpu/docs/quota; Nein"
    )
    assert details_in_words([]) == details_in_words([rpc.ErrorInfo(reason="X")]) == ""


async def test_details_stand_in_the_error(open_env: Open) -> None:
    """A refusal over the wire keeps text and details."""
    env = open_env(quota={"TPUV2sPreemptiblePerProjectPerZoneForTPUAPI@us-central1-f": 4})
    words = r"has been exceeded.*EID: 0x.*\[zone us-central1-f: Quota '.*' exhausted"
    async with env.client() as client:
        with pytest.raises(QuotaExceeded, match=words):
            await env.create(client)
