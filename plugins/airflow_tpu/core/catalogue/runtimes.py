# SPDX-License-Identifier: Apache-2.0
"""Whether a runtime version runs on a type, and which one comes nearest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import zip_longest

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, nearest
from airflow_tpu.errors import Fault

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_WITH_TENSORFLOW = "tpu-vm-tf-"
_FOR_PODS = "-pod"


def runtimes_of(kind: AcceleratorType) -> tuple[str, ...]:
    """Runtime versions for a type; an image with TensorFlow is for one worker or, ``-pod``, for a slice of several."""
    return tuple(name for name in kind.runtimes if _fits(name, kind.hosts > 1))


def runtime_faults(kind: AcceleratorType, runtime: str | None, known: Collection[str] = ()) -> list[Fault]:
    """A fault if the runtime version is unknown, of another generation, or for another number of workers.

    :param runtime: what is asked for; empty for the type's own default.
    :param known: every runtime version there is, to tell an unknown name from one of another type.
    """
    allowed = runtimes_of(kind)
    if not runtime or runtime in (kind.default_runtime, *allowed):
        return []
    problem = f"does not run on {kind.name}" if not known or runtime in known else "is no runtime version"
    return [Fault("runtime_version", runtime, problem, allowed, _nearest(runtime, allowed))]


def _fits(name: str, slice_of_several: bool) -> bool:
    return not name.startswith(_WITH_TENSORFLOW) or (_FOR_PODS in name) is slice_of_several


def _nearest(runtime: str, allowed: Iterable[str]) -> str | None:
    """By version first: there is 2.3 and 2.4.2 but no 2.4, and 2.4.2 is what its user means."""
    asked = version_of(runtime)
    versions = [(name, found) for name in allowed if (found := version_of(name))]
    if not asked or not versions:
        return nearest(runtime, allowed)
    return min(versions, key=lambda pair: distance(asked, pair[1]))[0]


def version_of(name: str) -> tuple[int, ...]:
    """Return the first version in a name, its first three numbers; empty if it has none."""
    match = _VERSION.search(name[:200])
    return tuple(int(part[:6]) for part in match.group().split("."))[:3] if match else ()


def distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return how far two versions are apart, the first number counting most; 2.18 is 2.18.0."""
    padded = zip_longest(one, other, fillvalue=0)
    return tuple(abs(mine - theirs) for mine, theirs in padded)
