# SPDX-License-Identifier: Apache-2.0
"""What the tests of attempts share: a task's workbench, a script in the bucket, a READY TPU with its lease."""

from __future__ import annotations

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.waits.reachability import arrive
from tests.airflow_tpu.cloud_env import BUCKET, KEY, PARENT, ZONE, CloudEnv, now, poll_policy

NODE_ID = KEY.node_id(1)
NODE = ResourceName.parse(f"{PARENT}/nodes/{NODE_ID}")
ENDLESS = "import time\nwhile True:\n    print('alive', flush=True)\n    time.sleep(0.1)\n"


def run_context(script: str = "hello.py", **changes: object) -> RunContext:
    """What a task works with, all connections read."""
    conf = {
        "script": script,
        "accelerator_type": "v2-8",
        "zone": ZONE,
        "tier": "spot",
        "artifacts_uri": f"gs://{BUCKET}/runs",
        "provisioning": "node",
        **changes,
    }
    found = RunContext(KEY, conf, Connections())
    _ = found.clients.access, found.clients.storage.get_conn()  # as the operators do, before an event loop runs
    return found


def script(env: CloudEnv, text: str) -> str:
    """Put a script into the bucket; returns its URI."""
    env.storage.get_conn().bucket(BUCKET).blob("scripts/x.py").upload_from_string(text)
    return f"gs://{BUCKET}/scripts/x.py"


async def ready(work: RunContext, client: TPUClient) -> RunRecord:
    """A READY TPU; returns its lease."""
    record = work.stores.runs.acquire(KEY, ZONE, work.request.deadline(now()))
    target = await Provisioner(client, work.stores, work.request.order(), record).ensure()
    await arrive(client, target, work.clients.access, poll_policy())
    return work.stores.runs.read(KEY)
