"""Load the grant and the catalogue, and find out where buckets are."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.core.catalogue import Catalogue
from airflow_tpu.core.grant_file import Grant
from airflow_tpu.errors import Fault, GrantUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_tpu.hooks.artifacts import ArtifactsHook


def load_grant(name: str = "") -> Grant:
    """Read the grant file.

    :param name: file below ``include/grants``; empty takes ``[airflow_tpu] grant``.
    :raises GrantUnknown: there is no such file, or it is not YAML.
    :raises ConfigError: something in it is wrong; every fault at once.
    """
    folder = settings.include_dir() / "grants"
    name = name or settings.grant_name()
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise GrantUnknown([Fault("grant", name, "is not a file of include/grants", _names(folder))], "the grant")
    return Grant.parse(_yaml(path))


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Types, zones and prices of ``include/catalogue``; read once per process."""
    return Catalogue.load(settings.include_dir() / "catalogue")


def bucket_locations(hook: ArtifactsHook, uris: Iterable[str]) -> dict[str, str | None]:
    """Location of the bucket behind each ``gs://`` URI, None where it may not be read."""
    found: dict[str, str | None] = {}
    for uri in uris:
        if uri.startswith("gs://"):
            found[uri] = hook.location(uri.removeprefix("gs://").split("/", 1)[0])
    return found


def store_root(grant: Grant) -> str:
    """``gs://bucket/prefix`` under which leases and the ledger live."""
    return f"gs://{grant.bucket}/{grant.prefix}"


def _yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise GrantUnknown([Fault("grant", path.name, f"is not YAML: {error}")], "the grant") from error


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.glob("*.yaml")))
