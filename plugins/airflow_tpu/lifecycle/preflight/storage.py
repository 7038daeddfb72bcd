# SPDX-License-Identifier: Apache-2.0
"""Look at every ``gs://`` URI of a run before anything is created: a typing error costs no wait for a TPU then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_tpu.core.request.storage_uris import NamedURI, named_uris
from airflow_tpu.core.source.configs import config_texts, without_script
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_tpu.core.source.bundle import Bundle
    from airflow_tpu.hooks.bucket_facts import BucketFacts
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

_MOST = 100
"""URIs of configurations that are looked at; a longer list names the files of one data set."""


def config_uris(run: RunContext, bundle: Bundle) -> list[NamedURI]:
    """Return the URIs of the configuration files that the run's command line names.

    :param run: what was asked for.
    :param bundle: what travels.
    """
    conf = run.conf
    field, words = "arguments", list(conf.arguments)
    if conf.command is not None:
        field, words = "command", without_script(conf.command.text.split())
    texts = config_texts(bundle.data, bundle.working_dir, words)
    found = [named for name, text in texts.items() for named in named_uris(f"{field} ({name})", conf.expanded(text))]
    return list({named.uri: named for named in found}.values())[:_MOST]


def check_storage(run: RunContext, more: Iterable[NamedURI]) -> None:
    """Refuse buckets that do not exist or bill their readers, and data that are not there.

    :param run: what was asked for.
    :param more: URIs beside those of the form.
    :raises ConfigError: with every fault, each with the field that is wrong.
    """
    facts = run.clients.storage.facts
    every = list(dict.fromkeys((*run.conf.named_uris, *more)))
    faults = {named: facts.fault(named.field, named.bucket) for named in {one.bucket: one for one in every}.values()}
    bad = {named.bucket: fault for named, fault in faults.items() if fault is not None}
    found = [Fault(one.field, one.uri, bad[one.bucket].problem) for one in every if one.bucket in bad]
    found += _absent(facts, [named for named in every if named.bucket not in bad])
    if found:
        raise ConfigError(found, "the storage of the run")


def _absent(facts: BucketFacts, named: Iterable[NamedURI]) -> list[Fault]:
    """Return a fault for each URI that is read and not there; of another one the log says so."""
    faults = []
    for one in named:
        if (
            one.field == "artifacts_uri"
            or "/" not in one.start.removeprefix("gs://")
            or facts.begins(one.start) is not False
        ):
            continue
        if one.is_read:
            faults.append(Fault(one.field, one.start, "names no object and no folder that has any"))
        else:
            log.warning(
                "%s: nothing is there yet at %s; right if the run writes it, else correct it", one.field, one.start
            )
    return faults
