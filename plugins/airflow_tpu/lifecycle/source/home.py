# SPDX-License-Identifier: Apache-2.0
"""Which ``include/train`` a run takes files from: the one in its DAG bundle at the run's version, or the deployed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_tpu import settings
from airflow_tpu.core.request.references.source_address import FolderAddress
from airflow_tpu.core.source.project import command_project, find_project

if TYPE_CHECKING:
    from airflow_tpu.core.request.run_conf import RunConf

log = logging.getLogger(__name__)

_BELOW = Path("include", "train")


class DagBundle(Protocol):
    """As much of Airflow's ``BaseDagBundle`` as counts here."""

    name: str
    version: str | None
    base_dir: Path
    supports_versioning: bool

    @property
    def path(self) -> Path:
        """Folder of its DAG files."""


@dataclass(frozen=True)
class Home:
    """Where the folders of projects lie on this worker.

    :param train: ``include/train`` with what the form names.
    :param others: that of ``[airflow_tpu] include_dir`` and that of the package, for what ``train`` lacks: the library,
        requirements.
    :param version: of the DAG bundle that ``train`` is in; empty if it is the deployed one.
    """

    train: Path
    others: tuple[Path, ...] = ()
    version: str = ""


def home_of(conf: RunConf, bundle: DagBundle | None) -> Home:
    """Return where the files of a run lie.

    A task runs with the version of the bundle that its DAG run began with, on whichever worker and after however many
    deferrals; what is deployed may be newer by then. What is in the bundle is taken from there, the rest as ever.

    :param conf: what was asked for.
    :param bundle: of the running task, None if it has none.
    """
    deployed, packaged = settings.include_dir() / "train", settings.package_include_dir() / "train"
    others = () if deployed == packaged else (packaged,)
    train = None if bundle is None else bundle_train(bundle)
    if bundle is None or train is None or not _has(train, conf):
        return Home(deployed, others)
    log.info("the project is that of the DAG bundle %s at version %s", bundle.name, bundle.version or "latest")
    return Home(train, (deployed, *others), bundle.version or "")


def bundle_train(bundle: DagBundle) -> Path | None:
    """Return ``include/train`` of a bundle with versions: beside its DAG files, or above them in the same checkout.

    :return: None if there is none.
    """
    folder = bundle.path
    while bundle.supports_versioning and folder != bundle.base_dir and folder.is_relative_to(bundle.base_dir):
        if (folder / _BELOW).is_dir():
            return folder / _BELOW
        folder = folder.parent
    return None


def _has(train: Path, conf: RunConf) -> bool:
    """Whether a folder holds the project, or where none is named the script."""
    address = conf.address
    if address is not None:
        return isinstance(address, FolderAddress) and (train / address.path).is_dir()
    if conf.script.startswith("gs://"):
        return False
    try:
        _ = find_project(train, conf.script) if conf.command is None else command_project(train, conf.command)
    except FileNotFoundError:
        return False
    return True
