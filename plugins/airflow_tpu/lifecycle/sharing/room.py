# SPDX-License-Identifier: Apache-2.0
"""Look again after a create: Airflows with different buckets share no reservation, so both may get the last TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_tpu.core.grant.checks import coverage
from airflow_tpu.errors import RowTaken
from airflow_tpu.lifecycle.project_snapshot import look_again, own_names, take_snapshot

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.grant.create_request import Request
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.run.run_record import RunRecord


async def require_row(client: TPUClient, grant: Grant, request: Request, record: RunRecord) -> None:
    """Make sure that what was requested before this TPU leaves room for it in the grant; of two, the younger gives way.

    The API's instant of each request decides, then the name, so that both sides come to the same answer. Whichever
    looks last sees both; what a silent zone hides is judged by the next look.

    :param client: the Cloud TPU API.
    :param grant: what may be used.
    :param request: what was asked of it.
    :param record: of the run, with the incarnation.
    :raises RowTaken: an older TPU has the last of the row.
    """
    # Lists may be stale: the own TPU at least is read by its name.
    snapshot = await look_again(client, await take_snapshot(client), own_names(client, record))
    older = snapshot.inventory().older_than(record.key.digest)
    _, objections = coverage(grant, request, older)
    if objections.full:
        raise RowTaken(
            f"an older TPU has taken the last of the grant while {record.node_id} was being created, so that one is "
            f"given back: {'; '.join(str(fault) for fault in objections.full)}"
        )
