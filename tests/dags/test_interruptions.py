# SPDX-License-Identifier: Apache-2.0
"""Interruptions of a run: cut connections, preemptions, scripts that leave nothing, odd names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import protocol
from localcloud.testing import BackgroundCloud, eventually
from localcloud.vm.progress import latest_step, paths_named
from tests.dags.evidence import check_books, events, metered_seconds, names_left, objects, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
VARIANTS = Path(__file__).parent / "files" / "variants.py"

STEPS = """
import json, os, pathlib, sys, time
output = pathlib.Path(os.environ["TRC_OUTPUT_DIR"])
steps = 80 if os.environ["TRC_ATTEMPT"] == "1" else 5
print("begin attempt", os.environ["TRC_ATTEMPT"], flush=True)
for step in range(steps):
    while step == 40 and not (output / "go").exists():
        time.sleep(0.03)
    print(f"step {step} done", flush=True)
    (output / "new.json").write_text(json.dumps({"step": step}))
    os.replace(output / "new.json", output / "progress.json")
    time.sleep(0.03)
(output / "model.txt").write_text("trained")
"""
"""The first attempt waits half-way for the file ``go``: however slow the machine is, it is not over too soon."""


def steps_logged(log: str) -> list[int]:
    """Numbers of the steps in the task log, in order."""
    return [int(number) for number in re.findall(r"step (\d+) done", log)]


@contextmanager
def at_step(cloud: BackgroundCloud, step: int, action: Callable[[], object]) -> Iterator[None]:
    """Do something beside the block, as soon as a training has reached a step and its log is being followed."""
    disks = cloud.cloud.config.state_dir / "vm"

    def watch() -> None:
        eventually(lambda: latest_step(disks), lambda found: found >= step)
        eventually(lambda: list(paths_named(protocol.DELIVERED_FILE, disks)), bool)
        action()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        yield
        watching.result()


def cut(cloud: BackgroundCloud) -> None:
    """Cut every SSH connection to every TPU VM, then let the training come to its end; processes live on."""
    for row in cloud.snapshot()["nodes"]:
        node_workers = cloud.call(lambda name=row["name"]: cloud.cloud.worker_pool.workers_of(name))  # type: ignore[misc]
        assert node_workers is not None
        cloud.run(node_workers.each(lambda worker: worker.drop()))
    for path in paths_named("progress.json", cloud.cloud.config.state_dir / "vm"):
        path.with_name("go").touch()


@pytest.mark.parametrize("inline", ["30", "0"], ids=["worker", "triggerer"])
def test_connection_cut_in_mid_run(
    cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch, inline: str
) -> None:
    """The training continues, the log resumes from the exact byte, once, and the task spends no try."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", inline)
    script = upload(cloud, "scripts/steps.py", STEPS)
    with at_step(cloud, 20, lambda: cut(cloud)):
        outcome = run_dag("tpu_train_deferring", VARIANTS, script=script, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert "connection lost; the run continues" in outcome.log
    assert steps_logged(outcome.log) == list(range(80))
    assert outcome.log.count("begin attempt") == 1
    assert outcome.tries["train"] == 1


@pytest.mark.parametrize("provisioning", ["queued-resource", pytest.param("node", marks=pytest.mark.soak)])
def test_preemption_in_mid_run(cloud: BackgroundCloud, run_dag: Run, provisioning: str) -> None:
    """The train task is tried again on a new incarnation; both lives are in the ledger, as the meter counted them."""
    cloud.add_fault("node.timeline", {"node": "*-1"}, preempt_at_step=15)
    script = upload(cloud, "scripts/steps.py", STEPS)
    outcome = run_dag(script=script, provisioning=provisioning)
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tries["train"] == 2
    assert outcome.tries["create"] == 1
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["preempted", "finished"]
    assert len(events(cloud, "opened")) == 2
    check_books(cloud)
    assert steps_logged(outcome.log)[-5:] == list(range(5))
    assert names_left(cloud) == []
    assert cloud.cloud.faults.unused() == []


def test_preemption_with_notice(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A script that is asked to end before its TPU goes is interrupted, not failed."""
    cloud.add_fault("node.timeline", {"node": "*-1"}, preempt_at_step=15, notice=0.5)
    outcome = run_dag(script=upload(cloud, "scripts/steps.py", STEPS), provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tries["train"] > 1
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["preempted", "finished"]
    assert names_left(cloud) == []


def test_preemption_while_deferred(cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that sees the TPU taken away ends the same way as a worker that does."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", "0")
    cloud.add_fault("node.timeline", {"node": "*-1"}, preempt_at_step=15)
    script = upload(cloud, "scripts/steps.py", STEPS)
    outcome = run_dag("tpu_train_deferring", VARIANTS, script=script)
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tries["train"] == 2
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["preempted", "finished"]
    check_books(cloud)
    assert names_left(cloud) == []


def test_stock_out_is_waited_for(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A create that ends for lack of capacity is repeated after a deferred wait, in the same try, and costs nothing."""
    message = 'There is no more capacity in the zone "us-central1-f"'
    cloud.add_fault("tpu.operation", {"verb": "create"}, action="error", code=8, message=message)
    outcome = run_dag(provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tries["create"] == 1
    assert re.search(
        r"waiting for capacity for on-demand v2-8 in us-central1-f: .* since .*next check in .*giving up at",
        outcome.log,
    )
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["never-ready", "finished"]
    check_books(cloud)


def test_stock_out_is_walked_around(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A run that may walk trains on another row of the grant in the same region; its books and its delete follow it."""
    message = 'There is no more capacity in the zone "us-central1-f"'
    cloud.add_fault("tpu.operation", {"verb": "create"}, times=2, action="error", code=8, message=message)
    outcome = run_dag(provisioning="node", on_stock_out="walk", tier="spot", accelerator_type="v2-8")
    assert outcome.state == "success", outcome.log[-4000:]
    assert set(outcome.tries.values()) == {1}
    first = "no capacity for spot v2-8 in us-central1-f; requesting on-demand v2-8 in us-central1-f next"
    second = "no capacity for on-demand v2-8 in us-central1-f; requesting spot v5litepod-4 in us-central1-a next"
    assert [text in outcome.log for text in (first, second)] == [True, True]
    found = [(event["tier"], event["accelerator_type"], event["zone"]) for event in events(cloud, "opened")]
    assert found == [
        ("spot", "v2-8", "us-central1-f"),
        ("on-demand", "v2-8", "us-central1-f"),
        ("spot", "v5litepod-4", "us-central1-a"),
    ]
    ends = [event["end_reason"] for event in events(cloud, "closed")]
    assert ends == ["never-ready", "never-ready", "finished"]
    assert outcome.xcom["create"]["zone"] == "us-central1-a"
    check_books(cloud)
    assert names_left(cloud) == []


def test_ready_and_never_reachable_is_charged(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A TPU that was READY and could not be used is deleted, and its READY time is in the ledger all the same."""
    cloud.add_fault("vm.ssh", {"node": "*-1"}, rotate_host_key=True)
    outcome = run_dag(provisioning="node")
    assert outcome.state == "failed"
    assert outcome.tasks["create"] == "failed"
    assert "another host key" in outcome.log
    assert metered_seconds(cloud) > 0.0
    check_books(cloud)
    assert names_left(cloud) == []


def test_script_without_output_fails(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A script that ends well and leaves nothing is a failed run; its TPU is deleted, its log is kept."""
    outcome = run_dag(script=upload(cloud, "scripts/nothing.py", "print('all done')\n"), provisioning="node")
    assert outcome.state == "failed"
    assert (outcome.tasks["train"], outcome.tasks["copy"]) == ("success", "failed")
    assert (outcome.tasks["delete"], outcome.tasks["verdict"]) == ("success", "failed")
    assert outcome.tries["copy"] == 1
    assert "left no file in TRC_OUTPUT_DIR" in outcome.log
    assert any(name.endswith("/attempt-1/log.txt") for name in objects(cloud))
    assert names_left(cloud) == []


@pytest.mark.parametrize("name", ["학습/my train's 100% ü.py", "-rf.py"])
def test_script_with_an_odd_name(cloud: BackgroundCloud, run_dag: Run, name: str) -> None:
    """A script in the bucket runs whatever characters its name has."""
    script = "import os, pathlib\npathlib.Path(os.environ['TRC_OUTPUT_DIR'], 'out.txt').write_text('ü')\n"
    outcome = run_dag(script=upload(cloud, name, script), provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert any(found.endswith("/output/out.txt") for found in objects(cloud))


def test_foreign_nodes_survive(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Neither a look-alike of our names nor anything else that is not ours is touched by a whole run."""
    from google.cloud import tpu_v2

    create = cloud.cloud.service.methods["Tpu/CreateNode"]
    for node_id in ("tpu-train-0123456789-1", "colleague"):
        node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}
        parent = "projects/local-project/locations/us-central1-f"
        request = tpu_v2.CreateNodeRequest(parent=parent, node_id=node_id, node=node)
        cloud.call(lambda request=request: create(request))  # type: ignore[misc]
    outcome = run_dag(provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert names_left(cloud) == ["colleague", "tpu-train-0123456789-1"]
