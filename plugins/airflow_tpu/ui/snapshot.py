# SPDX-License-Identifier: Apache-2.0
"""What the page knows at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from airflow_tpu.core.grant.assignment import Assignment, assign
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.ledger.events import Opened
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot

GRANT, LIVE_TPUS, RECORDS, LEDGER = "grant", "live TPUs", "leases", "ledger"
IDENTITY, NAMES = "identity of this Airflow", "names of other Airflows"
NO_AIRFLOW = Airflows(None)
"""While the identity is unknown nothing is taken for this Airflow's own."""


@dataclass(frozen=True)
class Snapshot:
    """Everything behind the page; a part that could not be read is None and shows as unknown.

    :param now: aware instant of the reading.
    :param grant: the grant file.
    :param project: what is alive in the project.
    :param records: the record of each run, read after it, so that a TPU without one has really been forgotten.
    :param usage: the folded ledger.
    :param problems: why a part is missing, by its name.
    :param left_alone: states of the runs whose records cannot be read, by digest.
    :param airflows: this Airflow and the others that use the bucket.
    """

    now: datetime
    grant: Grant | None = None
    project: ProjectSnapshot | None = None
    records: tuple[RunRecord, ...] | None = None
    usage: Usage | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    left_alone: Mapping[str, LeaseState] = field(default_factory=dict)
    airflows: Airflows = NO_AIRFLOW

    @cached_property
    def inventory(self) -> Inventory | None:
        """What is alive, as the grant counts it."""
        return None if self.project is None else self.project.inventory()

    @cached_property
    def assignment(self) -> Assignment | None:
        """The rows of the grant with the TPUs that belong to each, None if one of the two is unknown."""
        if self.grant is None or self.inventory is None:
            return None
        return assign(self.grant, self.inventory.items, self.paid)

    @cached_property
    def paid(self) -> frozenset[ResourceName]:
        """Names of the living TPUs whose bill was accepted."""
        items = self.inventory.items if self.inventory else ()
        named = {item.name: self.opened.get(item.name.id) for item in items if item.alive and item.name}
        return frozenset(name for name, opened in named.items() if opened is not None and opened.allowance is None)

    @cached_property
    def dag_ids(self) -> set[str]:
        """Every DAG that the page could name."""
        rows = self.usage.rows if self.usage else ()
        return {row.opened.dag_id for row in rows} | {record.key.dag_id for record in self.records or ()}

    @cached_property
    def runs(self) -> dict[str, tuple[str, str]]:
        """DAG and run id by digest of the run."""
        rows = self.usage.rows if self.usage else ()
        found = {row.opened.run: (row.opened.dag_id, row.opened.run_id) for row in rows}
        return found | {record.key.digest: (record.key.dag_id, record.key.run_id) for record in self.records or ()}

    @cached_property
    def opened(self) -> dict[str, Opened]:
        """The ledger's *opened* by node id."""
        return {row.opened.node_id: row.opened for row in (self.usage.rows if self.usage else ())}
