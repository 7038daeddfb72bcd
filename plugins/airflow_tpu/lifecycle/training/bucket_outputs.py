# SPDX-License-Identifier: Apache-2.0
"""What a script has written straight to a bucket, past the output directory."""

from __future__ import annotations

import datetime as dt
import logging
import re
from fnmatch import translate
from typing import TYPE_CHECKING

from airflow_tpu.core.request.storage_uris import NamedURI, named_uris

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def missing_outputs(run: RunContext, record: RunRecord) -> tuple[str, ...]:
    """Return the declared ``gs://`` outputs of which the run has written nothing; old objects do not count.

    :param run: what was asked for.
    :param record: says when the run began.
    """
    since, missing = _began(run, record), []
    for pattern in run.conf.bucket_outputs:
        (named,) = named_uris("outputs", pattern)
        written = run.clients.storage.facts.written_since(named.start, since)
        if written is None:
            log.warning("whether %s was written is unknown: its bucket may not be listed", pattern)
        elif not any(_names(pattern, uri) for uri in written):
            missing.append(pattern)
    return tuple(missing)


def written_elsewhere(run: RunContext, record: RunRecord) -> list[NamedURI]:
    """Return the URIs of the form, but not that of the artifacts, below which the run has written.

    :param run: what was asked for.
    :param record: says when the run began.
    """
    facts, since = run.clients.storage.facts, _began(run, record)
    every = {one.start: one for one in run.conf.named_uris if one.field not in ("artifacts_uri", "script", "data_uri")}
    return [one for one in every.values() if facts.written_since(one.start, since)]


def _began(run: RunContext, record: RunRecord) -> dt.datetime:
    """When the run first started; a clear gives the DAG run another start, and the script may rely on what it wrote.

    What another training of the session has written before this one began does not count.
    """
    first_at = run.attempt(record).first_at
    if len(record.trainings) > 1 and first_at is not None:
        return first_at
    holder = record.lease.holder
    starts = [holder.started_at if holder is not None else None, first_at]
    starts += [life.began_at for life in record.lives.values()]
    return min(start for start in starts if start is not None)


def _names(pattern: str, uri: str) -> bool:
    """Whether a pattern names an object; a ``*`` does not stop at a slash."""
    plain = pattern.rstrip("/")
    return uri.startswith(f"{plain}/") or re.fullmatch(translate(plain), uri) is not None
