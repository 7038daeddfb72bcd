"""The tasks that every DAG with a TPU needs, and their order.

``lease (setup) >> create >> your tasks >> delete (teardown of lease)``. A create that is itself the setup would, when
it fails half-way, take its teardown with it and leak the TPU; ``dagrun_timeout`` skips teardowns: do not set it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow.sdk import AssetAlias, TaskGroup

from airflow_tpu.core.request.form_fields import MAX_PREEMPTIONS
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.operators.ledger import USAGE_ASSET
from airflow_tpu.operators.tpu import CloudTPUCreateOperator, CloudTPUDeleteOperator
from airflow_tpu.retry import retry_policy

INFRASTRUCTURE_RETRIES = MAX_PREEMPTIONS + 50
"""Airflow's own limit of tries. It never decides: our budget does, and Airflow counts some tries by itself."""


@dataclass(frozen=True)
class TPUSession:
    """A TPU for the tasks inside the ``with`` block.

    :param setup: the lease; what must come before goes above it.
    :param work: group of the tasks that use the TPU.
    :param delete: the teardown; what must come after the TPU goes below it.
    :param arguments: what every operator of the session is called with.
    """

    setup: CloudTPULeaseOperator
    work: TaskGroup
    delete: CloudTPUDeleteOperator
    arguments: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def tpu_session(conf: str | Mapping[str, Any], **arguments: Any) -> Iterator[TPUSession]:
    """Lend a TPU to the tasks defined inside.

    .. code-block:: python

        with tpu_session(conf=CONF) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments) >> ...

    :param conf: what to run and where (templated).
    :param arguments: further arguments for every operator of the session (``gcp_conn_id``, ``deferrable`` ...).
    """
    common: dict[str, Any] = {"conf": conf, **arguments}
    retried: dict[str, Any] = {
        "retries": INFRASTRUCTURE_RETRIES,
        "retry_policy": retry_policy(),
        "retry_delay": timedelta(seconds=30),
    }
    lease = CloudTPULeaseOperator(
        task_id="lease", retries=3, retry_policy=retry_policy(), retry_delay=timedelta(seconds=10), **common
    )
    create = CloudTPUCreateOperator(task_id="create", **retried, **common)
    delete = CloudTPUDeleteOperator(
        task_id="delete",
        retries=8,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=True,
        max_retry_delay=timedelta(minutes=10),
        # An alias: a plain asset that another DAG has defined differently would keep the teardown from starting.
        outlets=[AssetAlias(USAGE_ASSET)],
        **common,
    )
    with TaskGroup("tpu", prefix_group_id=False) as work:
        yield TPUSession(lease, work, delete, {**retried, **common})
    lease.as_setup()  # type: ignore[no-untyped-call]  # Airflow's own
    lease >> create >> work >> delete.as_teardown(setups=lease, on_failure_fail_dagrun=True)
