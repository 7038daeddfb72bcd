# SPDX-License-Identifier: Apache-2.0
"""From what was asked for to the job that a worker starts: command, environment, deadline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_tpu.core.request.run_dates import RunDates
from airflow_tpu.core.run.job import JobSpec

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.core.catalogue.catalogue import AcceleratorType
    from airflow_tpu.core.request.run_conf import RunConf
    from airflow_tpu.core.source.bundle import Bundle


_WHEELS = "airflow-tpu-wheels"
"""Folder of a bucket; its objects may be removed at any time."""


@dataclass(frozen=True)
class Attempt:
    """One start of a run.

    :param run_name: name of the run on the worker.
    :param number: from 1.
    :param deadline: when the worker stops it by itself.
    :param baseline_uri: artifacts of the model that the result competes with, empty for none.
    :param dates: of the DAG run.
    :param own_resource: full name of what the worker deletes if Airflow does not come back, empty for nothing.
    :param code: digest of the source code.
    :param soft_delete_secs: for how long the bucket keeps and bills removed checkpoints.
    :param revision: commit of the project, or of the code that the script fetches by itself.
    :param folder: where its artifacts and checkpoints are below those of the form, empty for the name of the run.
    """

    run_name: str
    number: int
    deadline: dt.datetime
    baseline_uri: str = ""
    dates: RunDates = field(default_factory=RunDates)
    own_resource: str = ""
    code: str = ""
    soft_delete_secs: float = 0.0
    revision: str = ""
    folder: str = ""

    @property
    def place(self) -> str:
        """Where its artifacts and checkpoints are below those of the form."""
        return self.folder or self.run_name


def artifacts_uri(conf: RunConf, folder: str, attempt: int) -> str:
    """Where one attempt's artifacts go: attempts never overwrite each other's best model.

    :param folder: of the training (:func:`airflow_tpu.core.run.job.folder_of`).
    """
    return f"{conf.artifacts_uri}/{folder}/attempt-{attempt}"


def checkpoints_uri(conf: RunConf, folder: str) -> str:
    """Where a training's checkpoints outlive its TPUs: one place for all attempts, each writes below its own.

    :param folder: of the training.
    """
    return f"{conf.artifacts_uri}/{folder}/checkpoints"


def wheels_uri(conf: RunConf) -> str:
    """Where wheels are kept: in the bucket of the artifacts, for every run that writes to it."""
    return f"{'/'.join(conf.artifacts_uri.split('/')[:3])}/{_WHEELS}"


def plan_job(conf: RunConf, accelerator: AcceleratorType, bundle: Bundle, attempt: Attempt) -> JobSpec:
    """The job of one attempt.

    :param conf: what was asked for.
    :param accelerator: the type in the catalogue.
    :param bundle: what travels with it.
    :param attempt: which start this is.
    """
    packages = (*conf.packages, *bundle.packages)
    given = conf.command.environment if conf.command is not None else {}
    return JobSpec(
        run_name=attempt.run_name,
        attempt=attempt.number,
        argv=(*bundle.program, *conf.arguments),
        working_dir=bundle.working_dir,
        environment={**_contract(conf, accelerator, attempt), **conf.environment, **given},
        requirements=bundle.requirements,
        packages=packages,
        framework="" if conf.framework is None else str(conf.framework.wanted),
        wheels_uri=wheels_uri(conf) if bundle.requirements or packages else "",
        artifacts=conf.file_outputs,
        deadline=attempt.deadline.timestamp(),
        checkpoints_uri=checkpoints_uri(conf, attempt.place),
        stall_secs=conf.stall_minutes * 60.0,
        own_resource=attempt.own_resource,
        code=attempt.code,
        refuse_changed_code=conf.refuses_changed_code,
        soft_delete_secs=attempt.soft_delete_secs,
        artifacts_uri=artifacts_uri(conf, attempt.place, attempt.number),
    )


def _contract(conf: RunConf, accelerator: AcceleratorType, attempt: Attempt) -> dict[str, str]:
    # What only Airflow knows; the runner adds the rest (include/remote/supervisor/process_setup.py). The prefix keeps
    # clear of TPU_NAME, TPU_WORKER_ID and the like, which mean something to TensorFlow, JAX and libtpu.
    return {
        "TRC_WORKER_ID": "0",
        "TRC_WORKER_COUNT": str(accelerator.hosts),
        "TRC_ACCEL": "tpu",
        "TRC_DATA_URI": conf.data_uri,
        "TRC_ARTIFACTS_URI": artifacts_uri(conf, attempt.place, attempt.number),
        "TRC_BASELINE_URI": attempt.baseline_uri,
        "TRC_SEED": str(conf.seed),
        "TRC_REVISION": attempt.revision,
        **attempt.dates.environment,
    }
