# SPDX-License-Identifier: Apache-2.0
"""Compare an environment of Cloud Composer with what this project needs: what scripts/deploy-composer has to change.

Usage: ``changes.py packages|options ENVIRONMENT_JSON`` with the wanted ``NAME==VERSION`` or ``NAME=VALUE``,
one a line, on standard input; ``changes.py constraints`` with the output of ``pip list``. ENVIRONMENT_JSON is
what ``gcloud composer environments describe --format json`` prints. Standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OURS = "airflow-provider-tpu"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(.*)")
_INSTALLED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s+([0-9][A-Za-z0-9.!+-]*)\s*")


def package_changes(wanted: Iterable[str], environment: dict[str, Any]) -> Iterator[str]:
    """Return the requirements that the environment has not, or has in another version.

    :param wanted: as in a requirements file.
    :param environment: its description; ``pypiPackages`` maps names to extras and version.
    """
    have = _section(environment, "pypiPackages")
    known = {_canonical(name): specifier.strip() for name, specifier in have.items()}
    for requirement in wanted:
        name, specifier = _split(requirement)
        if known.get(_canonical(name)) != specifier:
            yield requirement


def option_changes(wanted: Iterable[str], environment: dict[str, Any]) -> Iterator[str]:
    """Return the options, ``SECTION-NAME=VALUE``, that the environment has not, or has with another value.

    A secrets backend that is configured stays: the connections may be in it.
    """
    have = _section(environment, "airflowConfigOverrides")
    for option in wanted:
        name, _, value = option.partition("=")
        if have.get(name) != value and not (name == "secrets-backend" and have.get(name)):
            yield option


def constraints(listing: Iterable[str]) -> Iterator[str]:
    """Return what ``pip list`` prints as constraints.

    Composer's own builds of Airflow have a local version (``3.3.1+composer``), which no index has; the release that it
    was built from stands for it. Our own package is what is about to change.
    """
    for line in listing:
        found = _INSTALLED.fullmatch(line.rstrip("\n"))
        if found and _canonical(found[1]) != OURS:
            yield f"{found[1]}=={found[2].partition('+')[0]}"


def _section(environment: dict[str, Any], name: str) -> dict[str, str]:
    return dict(environment.get("config", {}).get("softwareConfig", {}).get(name) or {})


def _split(requirement: str) -> tuple[str, str]:
    found = _REQUIREMENT.fullmatch(requirement.strip())
    if found is None:
        raise SystemExit(f"{requirement!r} is no requirement")
    return found[1], found[2].strip()


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(verb: str, description: str = "") -> None:
    """Print the changes, one a line."""
    if verb == "constraints":
        lines = constraints(sys.stdin)
    else:
        environment = json.loads(Path(description).read_text(encoding="utf-8"))
        wanted = [line.strip() for line in sys.stdin if line.strip() and not line.startswith("#")]
        lines = {"packages": package_changes, "options": option_changes}[verb](wanted, environment)
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
