# SPDX-License-Identifier: Apache-2.0
"""Start the run on its worker, or find it running there already; push what it produced."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_tpu.core.model.fingerprint import code_digest
from airflow_tpu.core.run.interruption import SilenceLimit
from airflow_tpu.core.run.job import LastAttempt, asked_digest
from airflow_tpu.core.run.plan import Attempt, artifacts_uri, plan_job
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from airflow_tpu.errors import ConfigError, ConnectionFailed, Fault
from airflow_tpu.hooks.bucket_facts import split_uri
from airflow_tpu.lifecycle.training.follow import RunningJob
from airflow_tpu.lifecycle.training.project_files import project_files
from airflow_tpu.lifecycle.training.removed_objects import kept_seconds
from airflow_tpu.lifecycle.waits.loss import living
from airflow_tpu.lifecycle.waits.reachability import session_with, worker_addresses

if TYPE_CHECKING:
    from airflow_tpu.clients.ssh import WorkerAddress
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import TPUView
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def build_bundle(run: RunContext) -> Bundle:
    """Collect the script, its neighbours and its requirements; keys that lie there are named and stay.

    :raises ConfigError: a file is missing, or may not be read.
    :raises SourceUnreachable: the server of the project did not answer.
    """
    bundle = _collect(run)
    if bundle.left_behind:
        log.warning(
            "not sent to the TPU VM, since they look like keys or password files: %s. The script has the VM's service "
            "account; other secrets belong in Airflow, named in the field secrets.",
            ", ".join(bundle.left_behind),
        )
    return bundle


def _collect(run: RunContext) -> Bundle:
    if run.conf.script.startswith("gs://"):
        return _collect_object(run)
    with project_files(run) as top:
        return Bundle.build(_source(run, top, run.conf.script))


def _source(run: RunContext, top: Path, script: str) -> Source:
    conf, home = run.conf, run.home
    return Source(top, script, home.train, conf.arguments, conf.requirements, conf.command, _python(run), home.others)


def _collect_object(run: RunContext) -> Bundle:
    """Collect a script that is an object of its own, with nothing beside it."""
    from google.api_core.exceptions import Forbidden, NotFound

    conf = run.conf
    bucket, name = split_uri(conf.script)
    with tempfile.TemporaryDirectory(prefix="airflow-tpu-") as folder:
        script = Path(folder) / Path(name).name
        try:
            run.clients.storage.download(bucket_name=bucket, object_name=name, filename=str(script))
        except (Forbidden, NotFound) as error:
            problem = "there is no such object" if isinstance(error, NotFound) else "may not be read"
            raise ConfigError([Fault("script", conf.script, problem)], "the bundle") from error
        return Bundle.build(_source(run, Path(folder), script.name))


def _python(run: RunContext) -> tuple[int, int] | None:
    """Version of Python on the TPU VM that the form asks for, None if it is not known."""
    return run.catalogue.pythons.get(run.request.spec.runtime_version)


async def locate(client: TPUClient, run: RunContext, record: RunRecord, node: ResourceName) -> RunningJob:
    """The last attempt, with the address of worker 0 as it is now: maintenance may have changed it.

    :raises TPULost: the node is gone or going.
    :raises ConnectionFailed: it has no address at the moment.
    """
    return await _running(client, run, record, await living(client, node))


async def _running(client: TPUClient, run: RunContext, record: RunRecord, view: TPUView) -> RunningJob:
    address = await _address(client, run, record, view)
    return RunningJob(view.name, address, run.attempt_ref(record), _silence_limit(run, record))


async def _address(client: TPUClient, run: RunContext, record: RunRecord, view: TPUView) -> WorkerAddress:
    pinned = record.life(view.node_id).host_keys
    addresses = await worker_addresses(client, view, run.clients.access.options.ssh_port, pinned)
    if not addresses:
        raise ConnectionFailed(f"{view.name} shows no address at the moment: it is being repaired or rebooted")
    return addresses[0]


def _silence_limit(run: RunContext, record: RunRecord) -> SilenceLimit:
    wanted = run.request
    spec = wanted.spec_of(wanted.alternative(record))
    price = wanted.catalogue.price(spec.accelerator_type, spec.zone, spec.tier)
    return SilenceLimit.with_cost(run.conf.unreachable_minutes, wanted.accelerator_of(record).chips, price)


async def attach(client: TPUClient, run: RunContext, record: RunRecord, node: ResourceName) -> RunningJob | None:
    """The attempt that an earlier try of this task left running (or finished) on this very node.

    A lease that was taken again may end later than the worker knows: then send it the new deadline.

    :return: None when there is none, when it has ended badly, or when something else is asked for by now: a new
        attempt is due, which stops the old one.
    """
    last = run.attempt(record)
    if last.number == 0 or last.node_id != node.id:
        return None
    if last.asked and last.asked != asked_digest(run.conf):
        log.warning("attempt %d was asked for something else: starting another one", last.number)
        return None
    job = await locate(client, run, record, node)
    async with session_with(client, run.clients.access.login, node, job.address) as session:
        status = await session.status(job.ref)
        if status.state == "running" and status.deadline and status.deadline < record.lease.expires_at.timestamp():
            await session.extend(job.ref, record.lease.expires_at.timestamp())
    done_well = status.state == "finished" and (status.result or {}).get("exit_code") == 0
    if done_well and last.code and last.code != _code(build_bundle(run), run):
        log.warning("the code has changed since attempt %d has finished: starting another one", last.number)
        return None
    if status.state == "running" or done_well:
        log.info("attempt %d is %s on %s: re-attaching", last.number, status.state, last.node_id)
        return job
    return None


def _code(bundle: Bundle, run: RunContext) -> str:
    return code_digest(bundle.sha256, run.revision)


async def launch(client: TPUClient, run: RunContext, record: RunRecord, node: ResourceName) -> RunningJob:
    """Ship the bundle and start the next attempt; its number is written down before it starts.

    What other trainings of the session have left running is stopped first: one process uses the TPU at a time.

    :raises RemoteError: the worker refused.
    """
    bundle = build_bundle(run)
    record = run.stores.runs.update(record, lambda now: _begun(run, now, node.id, _code(bundle, run)))
    view = await living(client, node)
    job = await _running(client, run, record, view)
    attempt = _attempt(run, record, str(view.queued_resource or view.name))
    spec = plan_job(run.conf, run.request.accelerator_of(record), bundle, attempt)
    async with session_with(client, run.clients.access.login, node, job.address) as session:
        for training in _others(run, record, node.id):
            await session.stop(run.of_training(training).attempt_ref(record))
        started = await session.start(spec, bundle, run.secrets)
    log.info("attempt %d of %s runs as process %s on %s", attempt.number, run.folder, started.pid, node.id)
    return job


def _begun(run: RunContext, record: RunRecord, node_id: str, code: str) -> RunRecord:
    uri = artifacts_uri(run.conf, run.folder, run.attempt(record).number + 1)
    return record.next_attempt(
        LastAttempt(node_id=node_id, at=run.clock.now(), uri=uri, asked=asked_digest(run.conf), code=code), run.training
    )


def _attempt(run: RunContext, record: RunRecord, own_resource: str) -> Attempt:
    champion = run.models.champion() if run.conf.model else None
    ref = run.attempt_ref(record)
    return Attempt(
        ref.run_name,
        ref.attempt,
        record.lease.expires_at,
        champion.artifacts_uri if champion else "",
        run.dates,
        own_resource,
        run.attempt(record).code,
        kept_seconds(run),
        run.code_version,
        run.folder,
    )


def _others(run: RunContext, record: RunRecord, node_id: str) -> list[str]:
    """Other trainings that were started on this very node."""
    return [name for name, last in record.trainings.items() if name != run.training and last.node_id == node_id]
