# SPDX-License-Identifier: Apache-2.0
"""Registers the page *TPU usage* from a plugins folder, unless the installed package does it already.

Airflow calls a plugin that comes from two places an import error and shows it to everybody.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

log = logging.getLogger(__name__)

_INSTALLED = [point for point in entry_points(group="airflow.plugins") if point.module.startswith("airflow_tpu.")]

if _INSTALLED:
    _DIST = _INSTALLED[0].dist
    log.warning(
        "%s does nothing: the installed package %s %s registers the page 'TPU usage' already. Keep one of the two: "
        "remove the copy in the plugins folder, or uninstall the package.",
        __file__,
        _DIST.name if _DIST else "airflow-provider-tpu",
        _DIST.version if _DIST else "",
    )
else:
    from airflow_tpu.ui.plugin import CloudTPUPlugin  # noqa: F401 - Airflow looks for it here
