"""What the tests of attempts share: a task's workbench, a script in the bucket, a READY TPU with its lease."""

from __future__ import annotations

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.lifecycle.ensure_tpu import Provisioner
from airflow_tpu.lifecycle.reachability import arrive
from airflow_tpu.lifecycle.run_context import Connections, Workbench
from tests.airflow_tpu.site import BUCKET, KEY, PARENT, ZONE, Site, now, pace

NODE_ID = KEY.node_id(1)
NODE = ResourceName.parse(f"{PARENT}/nodes/{NODE_ID}")
ENDLESS = "import time\nwhile True:\n    print('alive', flush=True)\n    time.sleep(0.1)\n"


def bench(script: str = "hello.py", **changes: object) -> Workbench:
    """What a task works with, all connections read."""
    conf = {
        "script": script,
        "accelerator_type": "v2-8",
        "zone": ZONE,
        "artifacts_uri": f"gs://{BUCKET}/runs",
        "provisioning": "node",
        **changes,
    }
    found = Workbench(KEY, Connections("google_cloud_default", "tpu_ssh_default"), conf)
    _ = found.access, found.storage.get_conn()  # as the operators do, before an event loop runs
    return found


def script(site: Site, text: str) -> str:
    """Put a script into the bucket; returns its URI."""
    site.storage.get_conn().bucket(BUCKET).blob("scripts/x.py").upload_from_string(text)
    return f"gs://{BUCKET}/scripts/x.py"


async def ready(work: Workbench, client: TPUClient) -> RunRecord:
    """A READY TPU; returns its lease."""
    record = work.runs.acquire(KEY, ZONE, work.deadline(now()))
    target = await Provisioner(client, work.runs, work.ledger).ensure(work.order(), record)
    await arrive(client, target, work.access, pace())
    return work.runs.read(KEY)
