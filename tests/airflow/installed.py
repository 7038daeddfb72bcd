# SPDX-License-Identifier: Apache-2.0
"""The package as an Airflow finds it that has its wheel: metadata with entry points; the code stays where it is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from airflow_tpu import __version__
from tests.scripts.whole_chain import ROOT


def write_metadata(site: Path) -> None:
    """Write what pip would, from the project file.

    :param site: a directory of the Python path, created here.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], __version__
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    head = {"Metadata-Version": "2.1", "Name": name, "Version": version, "Summary": project["description"]}
    (folder / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in head.items()), encoding="utf-8")
    points = "\n".join(_section(group, points) for group, points in project["entry-points"].items())
    (folder / "entry_points.txt").write_text(points, encoding="utf-8")


def _section(group: str, points: Mapping[str, str]) -> str:
    return "".join(f"{line}\n" for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items())))
