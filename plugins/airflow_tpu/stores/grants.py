# SPDX-License-Identifier: Apache-2.0
"""Load the grant and the catalogue, and find out where buckets are."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.clients import airflow_state
from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.columns import TABLES
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.errors import ConfigError, Fault, GrantUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_tpu.core.catalogue.transfer_rates import StoredSize
    from airflow_tpu.hooks.artifacts import ArtifactsHook


SHARED = "airflow-tpu-shared"
"""Folder of a bucket that no prefix separates: names of Airflows, and what is reserved of the project's grant."""

VARIABLE = "variable:"
"""How ``[airflow_tpu] grant`` begins when it names an Airflow Variable."""


def load_grant(name: str = "", storage: ArtifactsHook | None = None) -> Grant:
    """Read the grant, from wherever ``[airflow_tpu] grant`` says it is.

    :param name: file below ``include/grants``, ``variable:NAME`` for an Airflow Variable, or the ``gs://`` URI of an
        object; empty takes ``[airflow_tpu] grant``.
    :param storage: Cloud Storage for a ``gs://`` URI; by default through the connection ``google_cloud_default``.
    :raises GrantUnknown: there is no such grant, or it is not YAML.
    :raises ConfigError: something in it is wrong; every fault at once.
    """
    name = name or settings.grant_name()
    return Grant.parse(_yaml(name, _text(name, storage)), load_catalogue().generations)


def grant_at_parse() -> Grant | None:
    """The grant for a form, while a DAG file is parsed: only a file is read, which costs no request.

    A grant in a bucket is shown from the file in ``include/grants`` that has the name of the object: on Cloud Composer
    the two are the same, seen through different doors. What is covered is decided by the object alone.

    :return: None if there is none, if it is wrong (the first task says why), or if it lies elsewhere.
    """
    name = settings.grant_name()
    if name.startswith(VARIABLE):
        return None
    if name.startswith("gs://"):
        name = name.rpartition("/")[2]
    try:
        return load_grant(name)
    except (ConfigError, FileNotFoundError):
        return None


def _text(name: str, storage: ArtifactsHook | None) -> str:
    if name.startswith("gs://"):
        return _object(name, storage)
    return _variable(name.removeprefix(VARIABLE)) if name.startswith(VARIABLE) else _file(name)


def _file(name: str) -> str:
    folder = settings.include_dir() / "grants"
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        elsewhere = (*_names(folder), "variable:NAME", "gs://bucket/grant.yaml")
        raise GrantUnknown([Fault("grant", name, "is not a file of include/grants", elsewhere)], "the grant")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GrantUnknown([Fault("grant", name, f"cannot be read: {error}")], "the grant") from error


def _variable(key: str) -> str:
    found = airflow_state.variable(key)
    if not isinstance(found, str) or not found.strip():
        raise GrantUnknown([Fault("grant", f"{VARIABLE}{key}", "names no Airflow Variable with text")], "the grant")
    return found


def _object(uri: str, storage: ArtifactsHook | None) -> str:
    from google.api_core.exceptions import Forbidden, NotFound

    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.hooks.bucket_facts import split_uri

    bucket, name = split_uri(uri)
    try:
        return bytes((storage or ArtifactsHook()).download(bucket_name=bucket, object_name=name)).decode("utf-8")
    except (Forbidden, NotFound, UnicodeDecodeError) as error:
        problem = "does not exist" if isinstance(error, NotFound) else f"cannot be read: {error}"
        raise GrantUnknown([Fault("grant", uri, problem)], "the grant") from error


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Types, zones and prices of ``include/catalogue``, or of ``[airflow_tpu] catalogue``; read once per process.

    :raises ConfigError: that folder has no table, or one that is wrong.
    """
    return Catalogue.load(settings.tables_dir(), own_tables(settings.catalogue_dir()))


def own_tables(folder: Path | None) -> dict[str, Path]:
    """Tables of the catalogue that a folder replaces, by name.

    :raises ConfigError: there is none, or a CSV file with an unknown name.
    """
    if folder is None:
        return {}
    names = sorted(path.name for path in folder.glob("*.csv"))
    faults = [
        Fault("catalogue", str(folder / name), "is no table of the catalogue", tuple(TABLES))
        for name in names
        if name not in TABLES
    ]
    if not names:
        faults = [Fault("catalogue", str(folder), "is not a folder with a table in it", tuple(TABLES))]
    if faults:
        raise ConfigError(faults, "the catalogue")
    return {name: folder / name for name in names}


def bucket_locations(hook: ArtifactsHook, uris: Iterable[str]) -> dict[str, str | None]:
    """Location of the bucket behind each ``gs://`` URI, None where it may not be read; one request for each bucket."""
    buckets = {uri: uri.removeprefix("gs://").split("/", 1)[0] for uri in uris if uri.startswith("gs://")}
    found = {name: hook.facts.location(name) for name in dict.fromkeys(buckets.values())}
    return {uri: found[name] for uri, name in buckets.items()}


def amounts_elsewhere(
    hook: ArtifactsHook, locations: Mapping[str, str | None], region: str
) -> dict[str, StoredSize | None]:
    """How much lies below each URI whose bucket is not in the TPU's region; None where it may not be listed."""
    return {
        uri: hook.facts.amount(uri)
        for uri, location in locations.items()
        if location is not None and location.upper() != region.upper()
    }


def store_root(grant: Grant) -> str:
    """``gs://bucket/prefix`` under which leases and the ledger live."""
    return f"gs://{grant.bucket}/{grant.prefix}"


def shared_root(grant: Grant) -> str:
    """Where the Airflows that use a bucket for one project keep what they share, whatever their prefixes."""
    return f"gs://{grant.bucket}/{SHARED}/{grant.project_id}"


def _yaml(name: str, text: str) -> Any:
    import yaml

    # libyaml where it is built in: every parse of a DAG with a form reads the grant.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, loader)  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        raise GrantUnknown([Fault("grant", name, f"is not YAML: {error}")], "the grant") from error


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.glob("*.yaml")))
