# SPDX-License-Identifier: Apache-2.0
"""From a type and a wanted framework to the runtime version and the packages that bring it to that type's TPU.

A TensorFlow of an image is used as it is. Every other framework is installed on the plain image of the type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, nearest
from airflow_tpu.core.catalogue.runtimes import distance, runtimes_of, version_of
from airflow_tpu.errors import Fault

TENSORFLOW, JAX, TORCH = "tensorflow", "jax", "torch"
FRAMEWORKS = (TENSORFLOW, JAX, TORCH)
_ALIASES = {"tf": TENSORFLOW, "tensorflow-tpu": TENSORFLOW, "pytorch": TORCH, "torch-xla": TORCH, "torch_xla": TORCH}
_WANTED = re.compile(r"(?P<name>[A-Za-z][A-Za-z_-]*)(?:\s*(?:==)?\s*(?P<version>\d+(?:\.\d+){0,3}))?")
_ANY = "any"


@dataclass(frozen=True)
class WantedFramework:
    """A framework, and which version of it; an empty version takes what fits best."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True)
class Stack:
    """What brings a framework to a TPU.

    :param wanted: the framework, with its version unless pip picks it.
    :param runtime: runtime version of the TPU VM.
    :param packages: what is installed on it; nothing if the image has the framework.
    """

    wanted: WantedFramework
    runtime: str
    packages: tuple[str, ...] = ()


def wanted(text: str) -> WantedFramework | None:
    """Return what a person asks for: ``tensorflow 2.18``, ``jax``, ``torch==2.9.0``; None for other words."""
    found = _WANTED.fullmatch(text.strip())
    name = found["name"].lower() if found is not None else ""
    name = _ALIASES.get(name, name)
    return WantedFramework(name, found["version"] or "") if found is not None and name in FRAMEWORKS else None


def resolve(kind: AcceleratorType, asked: WantedFramework, table: Iterable[Mapping[str, str]]) -> Stack | Fault:
    """Return what brings a framework to a type, or the fault that nothing does, with the nearest valid version.

    :param kind: the type.
    :param asked: the framework.
    :param table: rows of ``frameworks.csv``.
    """
    stacks = [*_of_images(kind, asked.name), *_of_packages(kind, asked, table)]
    if not asked.version and stacks:
        return next((stack for stack in stacks if stack.runtime == kind.default_runtime), stacks[0])
    for stack in stacks:
        if _same(stack.wanted.version, asked.version):
            return stack
    versions = list(dict.fromkeys(stack.wanted.version for stack in stacks))
    close = min(versions, key=lambda one: distance(version_of(asked.version), version_of(one)), default=None)
    allowed = tuple(f"{asked.name} {version}" for version in versions)
    named = f"{asked.name} {close}" if close else None
    return Fault("framework", str(asked), _problem(kind, asked, versions), allowed, named)


def stack_fault(stack: Stack, kind: AcceleratorType, runtime: str) -> Fault | None:
    """Return why a framework does not fit a runtime version that was asked for too; None if it does.

    :param stack: of the framework.
    :param kind: the type.
    :param runtime: what was asked for.
    """
    if version_of(runtime) == version_of(stack.runtime) if not stack.packages else runtime == kind.base_runtime:
        return None
    return Fault("runtime_version", runtime, f"is not the one for {stack.wanted}", (stack.runtime,), stack.runtime)


def _of_images(kind: AcceleratorType, name: str) -> list[Stack]:
    if name != TENSORFLOW:
        return []
    names = [runtime for runtime in runtimes_of(kind) if version_of(runtime) and "-tf-" in runtime]
    found = [Stack(WantedFramework(name, ".".join(map(str, version_of(runtime)))), runtime) for runtime in names]
    return sorted(found, key=lambda stack: stack.runtime != kind.default_runtime)


def _of_packages(kind: AcceleratorType, asked: WantedFramework, table: Iterable[Mapping[str, str]]) -> list[Stack]:
    found = []
    for row in table:
        if row["framework"] == asked.name and kind.generation in row["generations"].split(";") and kind.base_runtime:
            version, packages = row["version"], tuple(row["packages"].split())
            if version == _ANY:
                version = asked.version
                packages = tuple(f"{one}=={version}" for one in packages) if version else packages
            found.append(Stack(WantedFramework(asked.name, version), kind.base_runtime, packages))
    return found


def _same(one: str, other: str) -> bool:
    """2.18 is 2.18.0, as for pip; 2.4 is not 2.4.2."""
    return not any(distance(version_of(one), version_of(other)))


def _problem(kind: AcceleratorType, asked: WantedFramework, versions: list[str]) -> str:
    if not versions:
        return f"is not known to run on {kind.name}"
    newest = max(versions, key=version_of)
    if version_of(asked.version) > version_of(newest):
        return f"does not run on {kind.name}: {newest} is the last {asked.name} for it that is known"
    return f"does not run on {kind.name}: no image and no package has this version"


def nearest_framework(text: str) -> str:
    """Return the name of what a person may mean."""
    name = text.partition(" ")[0].lower()
    return nearest(name, (*FRAMEWORKS, *_ALIASES)) or FRAMEWORKS[0]
