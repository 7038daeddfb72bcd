# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Google behind ``gcloud`` and ``uv publish``: one environment, one repository, scripted answers.

Usage: ``google_cli.py STATE gcloud|uv ARGUMENTS``. STATE is a JSON file; each call is noted in it. The answers are
those that Google documents or that people have seen:

* "No change in configuration": https://github.com/GoogleCloudPlatform/cloud-sql-python-connector/issues/653
* "The caller does not have permission": Google's page on troubleshooting of the creation of environments
* an upload of a version that is there: https://github.com/astral-sh/uv/issues/8817
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

State = dict[str, Any]

EMPTY: State = {
    "packages": {"pandas": "==2.3.0"},
    "options": {"core-parallelism": "8"},
    "installed": {"apache-airflow": "3.3.1+composer", "protobuf": "6.33.5", "airflow-provider-tpu": "0.0.9"},
    "versions": [],
    "calls": [],
    "answers": [],
}
"""An environment of somebody who has packages and options of their own."""


class Refused(Exception):
    """Google says no; the text is what it prints."""


def describe(state: State, _: list[str]) -> str:
    """The environment as JSON."""
    software = {"pypiPackages": state["packages"], "airflowConfigOverrides": state["options"]}
    config = {"softwareConfig": software, "dagGcsPrefix": "gs://env-bucket/dags", "airflowUri": "https://ui.example"}
    return json.dumps({"name": "my-env", "config": config})


def update(state: State, arguments: list[str]) -> str:
    """Change packages or options; one kind a call, and a change it must be."""
    packages = dict(re.findall(r"([\w-]+)(.*)", "\n".join(values(arguments, "update-pypi-package"))))
    options = dict(
        pair.split("=", 1) for value in values(arguments, "update-airflow-configs") for pair in value.split(",")
    )
    if bool(packages) == bool(options):
        raise Refused("ERROR: (gcloud.composer.environments.update) Exactly one kind of change must be specified.")
    target, changed = (state["packages"], packages) if packages else (state["options"], options)
    if changed.items() <= target.items():
        raise Refused(
            "ERROR: (gcloud.composer.environments.update) INVALID_ARGUMENT: No change in configuration. Must specify a "
            "change to configuration.software_configuration"
        )
    target.update(changed)
    return ""


def list_packages(state: State, _: list[str]) -> str:
    """What ``python -m pip list`` prints on a worker."""
    rows = [f"{name:<30} {version}" for name, version in state["installed"].items()]
    return "\n".join([f"{'Package':<30} Version", f"{'-' * 30} ----------", *rows])


def version(state: State, arguments: list[str]) -> str:
    """A version in the repository, if it is there."""
    if arguments[0] not in state["versions"]:
        raise Refused("ERROR: (gcloud.artifacts.versions.describe) NOT_FOUND: Requested entity was not found.")
    return "name: ..."


def publish(state: State, arguments: list[str]) -> str:
    """Take a wheel; none of a version that is there."""
    number = Path(arguments[-1]).name.split("-")[1]
    if number in state["versions"]:
        raise Refused("error: Upload failed with status code 400 Bad Request. Server says: 400 File already exists.")
    state["versions"].append(number)
    return ""


def build(_: State, arguments: list[str]) -> str:
    """A wheel by name, of the version in the source that it was given."""
    source = Path(arguments[-1], "plugins", "airflow_tpu", "__init__.py").read_text(encoding="utf-8")
    number = source.split('__version__ = "')[1].split('"')[0]
    folder = Path(values(arguments, "out-dir")[0])
    folder.mkdir(parents=True)
    (folder / f"airflow_provider_tpu-{number}-py3-none-any.whl").touch()
    return ""


def values(arguments: list[str], flag: str) -> list[str]:
    """Values of a flag, ``--flag value`` or ``--flag=value``."""
    joined = [word.partition("=")[2] for word in arguments if word.startswith(f"--{flag}=")]
    return joined + [arguments[index + 1] for index, word in enumerate(arguments) if word == f"--{flag}"]


VERBS = {
    "gcloud auth list": lambda state, _: "deployer@example.org",
    "gcloud auth print-access-token": lambda state, _: "ya29.secret-token",
    "gcloud config get-value project": lambda state, _: "my-project",
    "gcloud composer environments describe": describe,
    "gcloud composer environments update": update,
    "gcloud composer environments list-packages": list_packages,
    "gcloud composer environments run": lambda state, _: "",
    "gcloud artifacts versions describe": version,
    "gcloud storage": lambda state, _: "",
    "uv --version": lambda state, _: "uv 0",
    "uv build": build,
    "uv pip compile": lambda state, _: "",
    "uv publish": publish,
}


def main(path: str, *words: str) -> int:
    """Answer one call."""
    state = json.loads(Path(path).read_text(encoding="utf-8"))
    line = " ".join(words)
    state["calls"].append(line)
    try:
        for scripted in state["answers"]:
            if line.startswith(scripted["call"]):
                raise Refused(scripted["text"])
        verb = next(verb for verb in VERBS if line.startswith(verb))
        sys.stdout.write(VERBS[verb](state, list(words[len(verb.split()) :])) + "\n")
    except Refused as refused:
        sys.stderr.write(f"{refused}\n")
        return 1
    finally:
        Path(path).write_text(json.dumps(state), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
