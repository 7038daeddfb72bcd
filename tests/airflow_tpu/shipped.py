# SPDX-License-Identifier: Apache-2.0
"""The catalogue that ships with the project, read once."""

from __future__ import annotations

from pathlib import Path

from airflow_tpu.core.catalogue.catalogue import Catalogue

CATALOGUE = Catalogue.load(Path(__file__).resolve().parents[2] / "include" / "catalogue")
GENERATIONS = CATALOGUE.generations
