# SPDX-License-Identifier: Apache-2.0
"""The tasks that every session on a TPU needs, and their order.

``lease (setup) >> create >> your tasks >> delete (teardown of lease) >> verdict``. A create that is itself the setup
would, when it fails half-way, take its teardown with it and leak the TPU; ``dagrun_timeout`` skips teardowns: do not
set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, TaskGroup
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import DuplicateTaskIdFound

from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.operators.ledger import USAGE_ASSET
from airflow_tpu.operators.provision import INFRASTRUCTURE_RETRIES
from airflow_tpu.operators.run import CloudTPUTrainOperator, nearest_trainings
from airflow_tpu.operators.tpu import CloudTPUCreateOperator, CloudTPUDeleteOperator
from airflow_tpu.operators.verdict import CloudTPUVerdictOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import Operator

    from airflow_tpu.tpu_run import Conf

GROUP = "tpu"
"""Id of the group around the tasks of a session that has been given none."""

LEASE = "lease"
"""Task id of the setup; the prefix that Airflow gives it is the name of the session."""


@dataclass(frozen=True)
class TPUSession:
    """A TPU for the tasks inside the ``with`` block.

    :param setup: the lease; what must come before goes above it.
    :param delete: the teardown; what needs no TPU any more, and must not keep it alive, goes below it.
    :param verdict: fails, and the DAG run with it, if a task above has failed; what must decide that too goes above it.
    :param arguments: what every operator of the session is called with.
    """

    setup: CloudTPULeaseOperator
    delete: CloudTPUDeleteOperator
    verdict: CloudTPUVerdictOperator
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tells the session apart in its DAG: the prefix of its tasks, empty without one."""
        return self.setup.session


@contextmanager
def tpu_session(conf: Conf, group_id: str = "", **arguments: Any) -> Iterator[TPUSession]:
    """Lend a TPU to the tasks defined inside.

    .. code-block:: python

        with tpu_session(conf=CONF) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments) >> ...

    A DAG may have any number of sessions, each with a TPU of its own, also in task groups, and in mapped ones. The
    DAG run fails when a task of a session has failed, or the delete of its TPU.

    Inside may be any tasks of Airflow's, and any number of trainings that cannot run at the same time.

    :param conf: what to run and where, such as ``TPURun(script="train.py")`` (templated).
    :param group_id: name of the session, which all its task ids begin with. One without a name has the ids ``lease``,
        ``create``, ``delete`` and ``verdict``; the next one beside it is called ``tpu__1``, as Airflow numbers tasks.
    :param arguments: further arguments for every operator of the session (``gcp_conn_id``, ``deferrable`` ...).
    :raises ConfigError: two trainings may run at once, or a task inside belongs to no session.
    """
    common = {"conf": conf, **arguments}
    with ExitStack() as groups:
        lease = _lease(group_id, common, groups)
        session = _around(lease, common)
        create = CloudTPUCreateOperator(**{"task_id": "create", "retries": INFRASTRUCTURE_RETRIES, **session.arguments})
        if lease.task_id == LEASE:  # else there is a group of that prefix already
            groups.enter_context(TaskGroup(GROUP, prefix_group_id=False, add_suffix_on_collision=True))
        before = set(lease.dag.task_ids)
        yield session
    work = [task for task in lease.dag.tasks if task.task_id not in before]
    check_session(lease, work)
    lease.session_ended = True
    lease.as_setup()  # type: ignore[no-untyped-call]  # Airflow's own
    session.delete.as_teardown(setups=lease, on_failure_fail_dagrun=True)
    lease >> create >> (_first(work) or [session.delete])
    (_last(work) or [create]) >> session.delete >> session.verdict


def _lease(group_id: str, common: Mapping[str, Any], groups: ExitStack) -> CloudTPULeaseOperator:
    """The setup, in the group that the session gets for its name, or because there is one without a name already."""
    arguments = {"task_id": LEASE, "retries": 3, "retry_delay": timedelta(seconds=10), **common}
    if not group_id:
        with suppress(DuplicateTaskIdFound):
            return _named(CloudTPULeaseOperator(**arguments))
    groups.enter_context(TaskGroup(group_id or GROUP, add_suffix_on_collision=not group_id))
    return _named(CloudTPULeaseOperator(**arguments))


def _named(lease: CloudTPULeaseOperator) -> CloudTPULeaseOperator:
    lease.session = lease.task_id.removesuffix(LEASE).rstrip(".")
    return lease


def _around(lease: CloudTPULeaseOperator, common: Mapping[str, Any]) -> TPUSession:
    """The session of a lease, with the tasks that come after its work."""
    common = {**common, "session": lease.session}
    often = {
        "retries": 8,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=10),
    }
    # An alias: a plain asset that another DAG has defined differently would keep the teardown from starting.
    told = [AssetAlias(USAGE_ASSET)]
    delete = CloudTPUDeleteOperator(**{**often, **common, "task_id": "delete", "outlets": told})
    return TPUSession(lease, delete, CloudTPUVerdictOperator(task_id="verdict"), common)


def _first(work: Sequence[Operator]) -> list[Operator]:
    """Tasks that depend on no other one of them."""
    ids = {task.task_id for task in work}
    return [task for task in work if ids.isdisjoint(task.upstream_task_ids)]


def _last(work: Sequence[Operator]) -> list[Operator]:
    """Tasks on which no other one of them depends."""
    ids = {task.task_id for task in work}
    return [task for task in work if ids.isdisjoint(task.downstream_task_ids)]


_REMEDY = "order them with >>, put them on branches of which one is taken, or give each a tpu_session of its own"


def check_session(lease: CloudTPULeaseOperator, work: Iterable[Operator]) -> None:
    """Refuse a session in which two trainings may run at once, or a task that belongs to no session.

    :param lease: of the session.
    :param work: the tasks inside.
    :raises ConfigError: names the tasks and what to do.
    """
    tasks, name = list(work), lease.session
    ours = [task for task in tasks if isinstance(task, CloudTPUBaseOperator)]
    trainings = [task for task in ours if isinstance(task, CloudTPUTrainOperator) and task.session == name]
    faults = [*_strangers(name, ours), *_mapped(lease, tasks), *_at_once(trainings), *_unknown(name, ours, trainings)]
    if faults:
        raise ConfigError(faults, f"the session {name}" if name else "the session")


def _strangers(name: str, ours: Iterable[CloudTPUBaseOperator]) -> Iterator[Fault]:
    for task in ours:
        if name and not task.session:
            yield Fault("session", task.task_id, "has no session: call it with **session.arguments")


_SHARED = "its mapped instances would share one TPU: map a task group with the tpu_session inside instead"


def _mapped(lease: CloudTPULeaseOperator, tasks: Iterable[Operator]) -> Iterator[Fault]:
    """What is mapped while the session is not: each instance would look for a TPU of its own index."""
    own = lease.get_closest_mapped_task_group()
    for task in tasks:
        if isinstance(task, MappedOperator):
            if issubclass(task.operator_class, CloudTPUBaseOperator):
                yield Fault("expand", task.task_id, _SHARED)
        elif (
            isinstance(task, CloudTPUBaseOperator)
            and task.session == lease.session
            and task.get_closest_mapped_task_group() is not own
        ):
            yield Fault("expand", task.task_id, _SHARED)


def _at_once(trainings: Iterable[CloudTPUTrainOperator]) -> Iterator[Fault]:
    for one, other in combinations(trainings, 2):
        if not _ordered(one, other) and not _on_branches(one, other):
            problem = f"may run at once on one TPU, which one process uses at a time: {_REMEDY}"
            yield Fault("trainings", f"{one.task_id}, {other.task_id}", problem)


def _ordered(one: BaseOperator, other: BaseOperator) -> bool:
    return one.task_id in _ended_before(other) or other.task_id in _ended_before(one)


_EAGER = frozenset({"always", "one_success", "one_failed", "one_done"})
"""Trigger rules by which a task begins before all those above it have ended."""


def _ended_before(task: Operator) -> set[str]:
    """Ids of the tasks that have ended whenever a task begins."""
    found, looked_at = set[str](), [task]
    while looked_at:
        below = looked_at.pop()
        if _waits_for_all(below):
            new = [above for above in below.upstream_list if above.task_id not in found]
            found |= {above.task_id for above in new}
            looked_at += new
    return found


def _waits_for_all(task: Operator) -> bool:
    """Whether a task begins only after all those directly above it have ended."""
    rule = str(getattr(task.trigger_rule, "value", task.trigger_rule))
    return rule not in _EAGER or (rule != "always" and len(task.upstream_task_ids) == 1)


def _on_branches(one: BaseOperator, other: BaseOperator) -> bool:
    """Whether a branching task above both leads to each of them by children that do not lead to the other."""
    first, second = ({task.task_id, *task.get_flat_relative_ids(upstream=True)} for task in (one, other))
    shared = [task for task in one.get_flat_relatives(upstream=True) if task.task_id in second]
    return any(
        task.downstream_task_ids & first
        and task.downstream_task_ids & second
        and not task.downstream_task_ids & first & second
        for task in shared
        if _branches(task)
    )


def _branches(task: Operator) -> bool:
    # By name: older releases of the standard provider have a class of their own for what is in the SDK now.
    return any(base.__name__ == "BranchMixIn" for base in type(task).__mro__)


_ABOVE = "write train >> copy inside the with block, or name one with training=..."


def _unknown(
    name: str, ours: Iterable[CloudTPUBaseOperator], trainings: Iterable[CloudTPUTrainOperator]
) -> Iterator[Fault]:
    known = {task.training: task.task_id for task in trainings}
    for task in ours:
        if isinstance(task, CloudTPUArtifactsToGCSOperator) and not task.of_task and not nearest_trainings(task):
            yield Fault("training", task.task_id, f"has no training above it: {_ABOVE}", tuple(known))
        named = task.of_task if isinstance(task, CloudTPUArtifactsToGCSOperator) and task.session == name else ""
        if named and named not in known and named not in known.values():
            yield Fault("training", named, f"is no training of the session of {task.task_id}", tuple(known))
