# SPDX-License-Identifier: Apache-2.0
"""Follow a run through every failure of the connection: each line of its log once, and the truth about its end."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from google.cloud.tpu_v2.types import Node

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.run.interruption import SilenceLimit
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.run.result import RunResult
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.errors import DeadlineExceeded, HostLost, RunInterrupted, TPULost, TPUPreempted
from airflow_tpu.lifecycle.training.follow import OVERTIME, Follower, RunningJob
from airflow_tpu.lifecycle.waits.reachability import ONE_TRY, arrive
from localcloud.testing import eventually
from localcloud.vm.progress import paths_named
from localcloud.vm.worker.interface import Worker
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, now, poll_policy
from tests.airflow_tpu.conftest import Open

pytestmark = pytest.mark.slow

NODE_ID = KEY.node_id(1)
LINES = [f"step {number} Ünïcode" for number in range(150)]
SCRIPT = """
import time
for number in range(150):
    print(f"step {number} Ünïcode", flush=True)
    time.sleep(0.015)
"""
GATE = """
import os, pathlib, time
output = pathlib.Path(os.environ["TRC_OUTPUT_DIR"])
(output / "progress.json").write_text('{"step": 1}')
def wait_for_go():
    while not (output / "go").exists():
        time.sleep(0.02)
"""
"""Begins a script that has to last, on however slow a machine, until the test lets it go on."""

WORDS = """
for number in range(3):
    time.sleep(0.4)
    if number == 2:
        wait_for_go()
    for word in ["one", "two", "three", "four"]:
        print(word, end=" ", flush=True)
        time.sleep(0.2)
    print("end", flush=True)
"""
FLOOD = """
import sys
sys.stdout.write("".join(f"line {number:094d}\\n" for number in range(30_000)))
"""
EMPTY = Bundle((), b"\0" * 1024)
PATIENT = replace(ONE_TRY, frame=3.0, keepalive=1.0)


@dataclass
class Log:
    """Collects lines, and does something once when a line comes by.

    :param at: the line.
    :param action: what to do then.
    """

    at: str = ""
    action: Callable[[], object] = lambda: None
    lines: list[str] = field(default_factory=list)
    records: int = 0

    def __call__(self, text: str) -> None:
        self.records += 1
        for line in text.split("\n"):
            self.lines.append(line)
            if line == self.at:
                self.action()


def later() -> dt.datetime:
    """A deadline that no test reaches."""
    return now() + dt.timedelta(hours=1)


async def started(env: CloudEnv, client: TPUClient, script: str = SCRIPT) -> RunningJob:
    """A READY node on which a script runs."""
    target = await env.provisioner(client, env.order(), env.lease()).ensure()
    arrival, (address,) = await arrive(client, target, env.access, poll_policy())
    job = JobSpec(KEY.name, 1, ("python3", "-u", "-c", script), environment={"PYTHONIOENCODING": "utf-8"})
    async with RunSession(address, env.login) as session:
        await session.start(job, EMPTY)
    return RunningJob(arrival.view.name, address, job.ref)


def follower(env: CloudEnv, client: TPUClient, job: RunningJob, write: Callable[[str], None]) -> Follower:
    """A follower that notices a frozen connection soon."""
    return Follower(client, env.login, job, write, PATIENT)


def on_worker(env: CloudEnv, action: Callable[[Worker], Awaitable[None]]) -> None:
    """Do something to the worker."""
    name = next(row["name"] for row in env.cloud.snapshot()["nodes"])
    node_workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(name))
    assert node_workers is not None
    env.cloud.run(node_workers.each(action))


def let_go_on(env: CloudEnv) -> None:
    """Let the script that waits, or is about to, continue."""
    vms = env.cloud.cloud.config.state_dir / "vm"
    for path in eventually(lambda: list(paths_named("progress.json", vms)), bool):
        path.with_name("go").touch()


@pytest.fixture
def real_env(open_env: Open) -> CloudEnv:
    """A local cloud whose VMs are as isolated as this machine allows, each with its own sshd."""
    return open_env(tier="auto")


@pytest.fixture
async def real_client(real_env: CloudEnv) -> Any:
    """Its client."""
    async with real_env.client() as client:
        yield client


async def test_undisturbed_run(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Every line comes once, in order, and the result is the worker's."""
    log = Log()
    job = await started(real_env, real_client)
    result = await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == LINES
    assert isinstance(result, RunResult)
    assert (result.exit_code, result.signal) == (0, None)


async def test_flood_is_written_as_few_records(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A script that prints 3 MB at once is followed in a few dozen records, with every line of it once and in order."""
    log = Log()
    job = await started(real_env, real_client, FLOOD)
    await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == [f"line {number:094d}" for number in range(30_000)]
    assert log.records <= len(log.lines) / 100


async def test_who_writes_slowly_hands_a_flood_over(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A triggerer leaves a long log to the next follower; nothing of it is lost, and nothing comes twice."""
    slow, quick = Log(), Log()
    job = await started(real_env, real_client, FLOOD)
    assert await follower(real_env, real_client, job, slow).until_finished(later(), is_slow=True) is None
    assert 0 < len(slow.lines) < 30_000
    assert await follower(real_env, real_client, job, quick).until_finished(later()) is not None
    text = "".join(f"line {number:094d}" for number in range(30_000))
    assert "".join(slow.lines + quick.lines) == text  # one line may have been cut in two


async def test_connection_cut_twice(real_env: CloudEnv, real_client: TPUClient) -> None:
    """The run continues through two cuts, and so does its log, from the exact byte, once."""
    log = Log("step 40 Ünïcode")

    def cut() -> None:
        on_worker(real_env, lambda worker: worker.drop())
        log.at = "step 100 Ünïcode"

    log.action = cut
    job = await started(real_env, real_client)
    result = await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == LINES
    assert result is not None
    assert result.exit_code == 0


async def test_frozen_connection(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A connection that stays open and silent is given up; after the thaw no line is missing or doubled."""
    log = Log("step 40 Ünïcode")
    job = await started(real_env, real_client)
    loop = asyncio.get_running_loop()

    def thaw() -> None:
        on_worker(real_env, lambda worker: worker.thaw())

    def freeze() -> None:
        on_worker(real_env, lambda worker: worker.freeze())
        loop.call_later(3.5, thaw)

    log.action = freeze
    result = await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == LINES
    assert result is not None


async def test_sshd_restarts_while_the_run_goes_on(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Refused connections on a READY node are neither success nor failure."""
    log = Log("step 40 Ünïcode")
    loop = asyncio.get_running_loop()

    def refuse() -> None:
        on_worker(real_env, lambda worker: worker.refuse())
        on_worker(real_env, lambda worker: worker.drop())
        loop.call_later(1.0, lambda: on_worker(real_env, lambda worker: worker.accept()))

    log.action = refuse
    job = await started(real_env, real_client)
    result = await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == LINES
    assert result is not None


async def test_preempted_in_mid_run(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A preemption is called one, and what was said before it is in the log, once."""
    log = Log("step 40 Ünïcode", lambda: real_env.cloud.preempt(NODE_ID))
    job = await started(real_env, real_client)
    with pytest.raises(TPUPreempted):
        await follower(real_env, real_client, job, log).until_finished(later())
    assert log.lines == LINES[: len(log.lines)]
    assert len(log.lines) > 40


async def test_preempted_while_the_connection_lives(real_env: CloudEnv, real_client: TPUClient) -> None:
    """What the API says is noticed although the worker still answers: nothing has to break first."""
    nodes = real_env.cloud.cloud.state.nodes

    def preempt_on_paper() -> None:
        real_env.cloud.call(lambda: nodes.force(real_env.cloud.cloud.state.node(NODE_ID), Node.State.PREEMPTED))

    job = await started(real_env, real_client, "import time\nprint('begun', flush=True)\ntime.sleep(600)")
    with pytest.raises(TPUPreempted) as caught:
        await follower(real_env, real_client, job, Log("begun", preempt_on_paper)).until_finished(later())
    assert caught.value.at is not None


async def test_deleted_in_mid_run(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A node that a person deletes is lost, not a failure of the script."""
    job = await started(real_env, real_client)

    def delete() -> None:
        state = real_env.cloud.cloud.state
        real_env.cloud.call(lambda: state.shutdown.remove(state.node(NODE_ID), by_user=True))

    with pytest.raises(TPULost):
        await follower(real_env, real_client, job, Log("step 40 Ünïcode", delete)).until_finished(later())


async def test_rebooted_in_mid_run(real_env: CloudEnv, real_client: TPUClient) -> None:
    """After a maintenance reboot the run is gone without a result, on a node that is READY: tried again soon."""
    real_env.cloud.add_fault("node.timeline", maintenance_at_step=2, seconds=0.5)
    second_step = """wait_for_go(); (output / "progress.json").write_text('{"step": 2}'); time.sleep(600)"""
    job = await started(real_env, real_client, GATE + second_step)  # a reboot before the answer is another story
    let_go_on(real_env)
    with pytest.raises(RunInterrupted, match="gone without a result"):
        await follower(real_env, real_client, job, Log()).until_finished(later())


class OnProgress(logging.Handler):
    """Does something when the log has a line of the progress.

    :param action: what to do then.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.action = action

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line."""
        if record.getMessage().startswith("progress.json:"):
            self.action()


async def test_a_silent_run_shows_how_far_it_is(
    real_env: CloudEnv, real_client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A script that prints nothing ends only after the log has said what its progress.json holds."""
    job = await started(real_env, real_client, f"{GATE}wait_for_go()")
    silent = Follower(real_client, real_env.login, job, (log := Log()), PATIENT, quiet=dt.timedelta(0))
    logger, shown = logging.getLogger(Follower.__module__), OnProgress(lambda: let_go_on(real_env))
    logger.addHandler(shown)
    try:
        with caplog.at_level(logging.INFO):
            result = await silent.until_finished(later())
    finally:
        logger.removeHandler(shown)
    assert (result and result.exit_code, log.lines) == (0, [])
    assert "progress.json: step 1; the run is stopped at " in caplog.text


async def test_frozen_host_is_given_up_when_the_form_says(
    real_env: CloudEnv, real_client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A frozen host that the API calls READY is lost after the time of the form, and the log says what that costs."""
    caplog.set_level(logging.INFO)
    log = Log("ready", lambda: on_worker(real_env, lambda worker: worker.freeze()))
    script = GATE + 'print("ready", flush=True)\nwait_for_go()\n'
    job = replace(await started(real_env, real_client, script), silence=SilenceLimit(1.0, "8 chips are held"))
    with pytest.raises(HostLost, match="nothing has answered there"):
        await follower(real_env, real_client, job, log).until_finished(later())
    assert any("connection lost" in line and "8 chips are held" in line for line in caplog.messages)


async def test_paused_and_taken_over(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Each follower continues with the byte after the last one's: no line is lost, doubled or torn."""
    log = Log()
    script = GATE + SCRIPT.replace("    print(", "    if number == 100:\n        wait_for_go()\n    print(")
    job = await started(real_env, real_client, script)
    result, rounds = None, 0
    while result is None:
        rounds += 1
        if rounds == 3:
            let_go_on(real_env)
        carried = json_form.from_json(RunningJob, json_form.to_json(job))
        following = follower(real_env, real_client, carried, log)
        result = await following.until_finished(later(), now() + dt.timedelta(seconds=0.8))
    assert log.lines == LINES
    assert rounds > 2


async def test_pause_waits_for_the_end_of_a_line(real_env: CloudEnv, real_client: TPUClient) -> None:
    """A line that is being written when the follower is relieved comes out whole."""
    script = GATE + WORDS
    lines: list[str] = []
    job = await started(real_env, real_client, script)
    first = follower(real_env, real_client, job, lines.append)
    assert await first.until_finished(later(), now() + dt.timedelta(seconds=0.7)) is None
    let_go_on(real_env)
    await follower(real_env, real_client, job, lines.append).until_finished(later())
    assert lines == ["one two three four end"] * 3


async def test_failure_is_a_result(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Exit status and signal of the script come back as they were, with the unfinished last line."""
    log = Log()
    script = "import os, sys; sys.stdout.write('last words'); sys.stdout.flush(); os.kill(os.getpid(), 11)"
    job = await started(real_env, real_client, script)
    result = await follower(real_env, real_client, job, log).until_finished(later())
    assert result is not None
    assert (result.exit_code, result.signal) == (None, 11)
    assert log.lines == ["last words"]


async def test_unknown_attempt_is_gone(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Following an attempt that was never started says so at once."""
    job = replace(await started(real_env, real_client, "pass"), ref=RunRef(KEY.name, 7))
    with pytest.raises(RunInterrupted):
        await follower(real_env, real_client, job, Log()).until_finished(later())


async def test_silent_after_the_deadline(real_env: CloudEnv, real_client: TPUClient) -> None:
    """Past the deadline a worker that cannot be reached has had its chance to say how the run ended."""
    job = await started(real_env, real_client)
    on_worker(real_env, lambda worker: worker.refuse())
    with pytest.raises(DeadlineExceeded, match="does not answer"):
        await follower(real_env, real_client, job, Log()).until_finished(now() - 2 * OVERTIME)
