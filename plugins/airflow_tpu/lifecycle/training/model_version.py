# SPDX-License-Identifier: Apache-2.0
"""The version of a model that a DAG run has trained: fingerprint, name, manifest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.core.model.fingerprint import DataObject, fingerprint
from airflow_tpu.core.model.model import ModelManifest
from airflow_tpu.core.report.text import ACKNOWLEDGEMENT
from airflow_tpu.core.report.usage_json import json_summary
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow_tpu.core.request.run_conf import RunConf
    from airflow_tpu.core.source.bundle import Bundle
    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.lifecycle.run_context import RunContext


def data_objects(hook: ArtifactsHook, uri: str) -> list[DataObject]:
    """Every object of a data set.

    :param uri: ``gs://`` URI of one object or of a prefix, empty when the script brings its data.
    :raises ConfigError: there is nothing.
    """
    if not uri:
        return []
    name = uri.removeprefix("gs://").partition("/")[2]
    found = [info for info in hook.listing(uri) if info.name == name or info.name.startswith(f"{name}/")]
    if not found:
        raise ConfigError([Fault("data_uri", uri, "names no object and no prefix that has any")], "the data set")
    return [DataObject(info.name, info.size, info.crc32c or str(info.generation)) for info in found]


def fingerprint_of(
    hook: ArtifactsHook, conf: RunConf, code: str, dates: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Fingerprint of what a run would train on and with; the TPU it would get does not count.

    :param code: digest of the code, see :func:`airflow_tpu.core.model.fingerprint.code_digest`.
    :param dates: of the run, as far as its code reads them.
    """
    shaping = {"arguments": list(conf.arguments), "environment": dict(conf.environment), "seed": conf.seed}
    return fingerprint(data_objects(hook, conf.data_uri), code, {**shaping, **_started(conf), **dates})


def dates_read(run: RunContext, bundle: Bundle) -> dict[str, str]:
    """Return the dates of a run that its code or its command line names: another night is other data then."""
    conf = run.conf
    texts = " ".join(
        (*conf.arguments, *conf.environment.values(), conf.command.text if conf.command is not None else "")
    )
    everything = bundle.data + texts.encode()
    return {name: value for name, value in run.dates.environment.items() if name.encode() in everything}


def _started(conf: RunConf) -> dict[str, str]:
    command = conf.command.text if conf.command is not None else ""
    return {"script": conf.script, "source": conf.source, "command": command}


def version_of(moment: dt.datetime, digest: str) -> str:
    """Name of a version: sorts by time, unique by run.

    :param moment: of the DAG run; the same for every try.
    :param digest: of the run.
    """
    return f"{moment.astimezone(dt.UTC):%Y%m%dT%H%M%SZ}-{digest}"


def describe(run: RunContext, dag_run: Any, found: str, output: tuple[str, Mapping[str, Any]]) -> ModelManifest:
    """The manifest of what a DAG run has trained.

    :param run: of the run.
    :param dag_run: Airflow's.
    :param found: fingerprint of data, code and settings.
    :param output: where the artifacts are, and the script's ``result.json``.
    """
    now = dt.datetime.now(dt.UTC)
    usage = json_summary(run.usage(now, whole=True), run.grant)
    conf = run.conf
    return ModelManifest(
        model=conf.model,
        version=version_of(dag_run.run_after, run.key.digest),
        created_at=now.isoformat(),
        artifacts_uri=output[0],
        fingerprint=found,
        result=output[1],
        origin={
            "airflow": run.key.airflow,
            "dag_id": run.key.dag_id,
            "run_id": run.key.run_id,
            "revision": revision(settings.include_dir()),
            "fetched_revision": conf.revision,
            "commit": run.project_version,
            **_started(conf),
            "arguments": list(conf.arguments),
            "data_uri": conf.data_uri,
            "seed": conf.seed,
            "accelerator_type": conf.accelerator_type,
            "zone": conf.zone,
            "tier": str(conf.tier),
            "runtime_version": conf.runtime_version,
        },
        usage={name: usage[name] for name in ("covered", "not_covered", "not_free")},
        acknowledgement=ACKNOWLEDGEMENT,
    )


def revision(folder: Path) -> str:
    """Commit of the git checkout that a folder is in, empty if it is in none.

    Read from the files: a worker need not have git, and a deployed copy often has no repository at all.
    """
    for parent in (folder, *folder.parents):
        head = parent / ".git" / "HEAD"
        if head.is_file():
            return _resolve(head.read_text(encoding="utf-8").strip(), parent / ".git")
    return ""


def _resolve(head: str, repository: Path) -> str:
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    if (repository / name).is_file():
        return (repository / name).read_text(encoding="utf-8").strip()
    packed = repository / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split(" ", 1)[0] for line in lines if line.endswith(f" {name}")), "")
