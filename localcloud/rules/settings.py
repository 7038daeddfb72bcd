# SPDX-License-Identifier: Apache-2.0
"""Settings of the local cloud's TPU API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localcloud.rules.project import ProjectRules


@dataclass(frozen=True)
class Latencies:
    """How long things take, in seconds of the cloud's clock; small by default so that a demo does not drag.

    :param registering: a queued resource from the call to WAITING_FOR_RESOURCES.
    :param waiting: a queued resource until its capacity is there.
    :param creating: a node in CREATING before its VMs boot (real: tens of seconds to minutes).
    :param failing: from the call to the error of an operation that fails (real: about 71 s was seen for a stock-out).
    :param deleting: a node or queued resource in DELETING, after its VMs are gone.
    :param suspending: a queued resource in SUSPENDING.
    :param changing: stop, start and update.
    :param preemptible_life: how long a node of the preemptible tier lives at most; 24 h as documented.
    """

    registering: float = 0.02
    waiting: float = 0.1
    creating: float = 0.3
    failing: float = 0.2
    deleting: float = 0.1
    suspending: float = 0.1
    changing: float = 0.1
    preemptible_life: float = 24 * 3600.0


@dataclass(frozen=True)
class Settings:
    """The project, its limits and its latencies.

    :param project_id: the only project there is.
    :param project_number: its number; accepted wherever the id is.
    :param latencies: how long things take.
    :param quota: limit by ``METRIC@zone`` or ``METRIC@region``; see :mod:`localcloud.rules.quota` for the metrics.
    :param default_quota: limit of every zonal metric that ``quota`` does not name, in chips (TensorCores for v2, v3).
    :param creates_per_minute: refuse more CreateNode calls than that; 0 does not count (91 was seen in one project).
    :param closed_zones: zones that answer as if the project were not admitted.
    :param spot_mean_life: mean seconds until a spot node is preempted at random; 0: never.
    :param preemption_notice: seconds between the TERM signal to the user's processes and the end of the VM.
    :param project: what the project lacks and what its organisation forbids.
    """

    project_id: str = "local-project"
    project_number: str = "100000000001"
    latencies: Latencies = field(default_factory=Latencies)
    quota: Mapping[str, int] = field(default_factory=dict)
    default_quota: int = 4096
    creates_per_minute: int = 0
    closed_zones: frozenset[str] = frozenset()
    spot_mean_life: float = 0.0
    preemption_notice: float = 0.0
    project: ProjectRules = field(default_factory=ProjectRules)
