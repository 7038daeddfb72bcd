# SPDX-License-Identifier: Apache-2.0
"""docker-compose.yaml, Dockerfile and .env.example by their text; scripts/test-compose brings them up for real."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft201909Validator

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TEXT = (ROOT / "docker-compose.yaml").read_text(encoding="utf-8")

# They end when their work is done, and others wait for that.
ONE_SHOTS = {"secrets", "airflow-init"}
AIRFLOW = {"airflow-init", "api-server", "scheduler", "dag-processor", "triggerer", "worker"}

# The schema of docker-compose 1.29.2, which Debian 12 has; newer ones take more (Apache License 2.0, unchanged from
# https://github.com/docker/compose/blob/1.29.2/compose/config/compose_spec.json).
SCHEMA = json.loads((Path(__file__).parent / "files" / "compose-spec.json").read_text(encoding="utf-8"))
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def default(text: str) -> str:
    """A value as it is without an .env: ``${NAME:-value}`` becomes ``value``."""
    return re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found.group(1) or "", text)


def filled_in(value: Any) -> Any:
    """A part of the file as docker compose sees it without an .env."""
    if isinstance(value, dict):
        return {key: int(default(part)) if key == "scale" else filled_in(part) for key, part in value.items()}
    if isinstance(value, list):
        return [filled_in(part) for part in value]
    return default(value) if isinstance(value, str) else value


def faults(compose: dict[str, Any]) -> list[str]:
    """What docker compose would refuse."""
    return [f"{error.json_path}: {error.message}" for error in Draft201909Validator(SCHEMA).iter_errors(compose)]


def variables(text: str) -> dict[str, str]:
    """Variables that a text asks for, with their defaults."""
    return {name: value or "" for name, value in re.findall(r"\$\{(\w+)(?::-([^}]*))?\}", text)}


def mounts(service: str) -> list[tuple[str, str, str]]:
    """Source, target and mode of each mount of a service."""
    parts = [(default(mount) + ":rw").split(":")[:3] for mount in SERVICES[service].get("volumes", [])]
    return [(source, target, mode) for source, target, mode in parts]


def test_the_stack_is_the_whole_of_airflow_and_the_local_cloud() -> None:
    """One command brings database, broker, every part of Airflow and the local cloud."""
    assert {"net", "secrets", "postgres", "redis", "localcloud"} | AIRFLOW == set(SERVICES)
    assert set(COMPOSE) - {name for name in COMPOSE if name.startswith("x-")} == {"services", "networks", "volumes"}


def test_it_follows_the_specification() -> None:
    """Docker compose, also an old one, takes the file; a misspelled key or a value of a wrong type would be noticed."""
    file = filled_in(COMPOSE)
    assert faults(file) == []
    for key, value in (("helthcheck", {}), ("user", 50000), ("scale", "one")):
        net = {**file["services"]["net"], key: value}
        assert faults({**file, "services": {**file["services"], "net": net}}) != [], key


@pytest.mark.parametrize("name", sorted(SERVICES))
class TestService:
    """What holds for every service."""

    def test_its_names_lead_somewhere(self, name: str) -> None:
        """The services that it waits for, its networks and its volumes are in the file."""
        service = SERVICES[name]
        waits = service.get("depends_on", {})
        assert set(waits) <= set(SERVICES)
        assert {wait["condition"] for wait in waits.values()} <= CONDITIONS
        assert set(service.get("networks", [])) <= set(COMPOSE["networks"])
        named = {source for source, _, _ in mounts(name) if not source.startswith(".")}
        assert named <= set(COMPOSE["volumes"])

    def test_it_has_no_rights_to_spare(self, name: str) -> None:
        """No service runs as root or privileged, keeps a capability, or sees the machine's network or engine."""
        service = SERVICES[name]
        assert default(service["user"]).split(":")[0] not in ("", "root", "0")
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("network_mode") in (None, "none", "service:net")
        assert [source for source, _, _ in mounts(name) if source.startswith(("/", "~"))] == []

    def test_its_image_is_pinned(self, name: str) -> None:
        """An image from a registry has a full version; one that is built here is never looked for in a registry."""
        image = default(SERVICES[name]["image"])
        if image.startswith("airflow-tpu"):
            assert SERVICES[name]["pull_policy"] == "never"
        else:
            assert re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?-\w+", image)

    def test_its_health_is_checked(self, name: str) -> None:
        """A service that stays has a health check; one that ends is waited for, and is not started over."""
        service = SERVICES[name]
        if name in ONE_SHOTS:
            waits = [other["depends_on"][name] for other in SERVICES.values() if name in other.get("depends_on", {})]
            assert {wait["condition"] for wait in waits} == {"service_completed_successfully"}
            assert service["restart"] == "no"
        else:
            assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
            assert service["restart"] == "unless-stopped"

    def test_its_environment_holds_no_secret(self, name: str) -> None:
        """A variable that could carry a secret is a path, a command that reads a file, or empty until .env fills it."""
        environment = {key: default(value) for key, value in SERVICES[name].get("environment", {}).items()}
        suspects = {key: value for key, value in environment.items() if re.search("PASSWORD|SECRET|KEY|CONN|URL", key)}
        harmless = re.compile(r"|(cat )?/run/airflow-tpu/[\w/.]+|http://[\w.]+:\d+[/\w]*|airflow\.\w[\w.]+|\{.*\}")
        allowed = {"CONNECTION_CHECK_MAX_COUNT"}
        assert {
            key: value for key, value in suspects.items() if key not in allowed and not harmless.fullmatch(value)
        } == {}


def test_only_the_ui_is_published_and_to_this_machine_only() -> None:
    """Without an .env one port is published, on loopback."""
    ports = {
        name: [default(port) for port in service["ports"]] for name, service in SERVICES.items() if "ports" in service
    }
    assert ports == {"net": ["127.0.0.1:8080:8080"]}


def test_database_and_broker_are_out_of_reach() -> None:
    """PostgreSQL and Redis are on a network that has no way out, and on no other."""
    assert COMPOSE["networks"]["backend"] == {"internal": True}
    assert {name: SERVICES[name]["networks"] for name in ("postgres", "redis")} == {
        "postgres": ["backend"],
        "redis": ["backend"],
    }


def test_airflow_reaches_the_machines_of_the_local_cloud() -> None:
    """Airflow and the local cloud share one network namespace: TPU VMs have loopback addresses."""
    assert {SERVICES[name]["network_mode"] for name in AIRFLOW | {"localcloud"}} == {"service:net"}


@pytest.mark.parametrize("name", sorted(AIRFLOW))
def test_all_parts_of_airflow_run_the_same_code(name: str) -> None:
    """They have one image, which has the package installed; folders are read-only and plugins/ is not among them."""
    assert SERVICES[name]["image"] == SERVICES["secrets"]["image"]
    targets = {target: (source, mode) for source, target, mode in mounts(name)}
    assert targets["/opt/airflow/dags"] == ("./dags", "ro")
    assert targets["/opt/airflow/include"] == ("./include", "ro")
    assert [source for source, _, _ in mounts(name) if "plugins" in source] == []


def test_each_secret_goes_only_where_it_is_needed() -> None:
    """PostgreSQL and Redis see their own password only, the local cloud none, and only one service writes any."""
    readers = {
        volume: {name: mode for name in SERVICES for source, _, mode in mounts(name) if source == volume}
        for volume in ("secrets", "database-secret", "broker-secret", "ui")
    }
    assert readers == {
        "secrets": {"secrets": "rw", **dict.fromkeys(AIRFLOW, "ro")},
        "database-secret": {"secrets": "rw", "postgres": "ro"},
        "broker-secret": {"secrets": "rw", "redis": "ro"},
        "ui": {"secrets": "rw", "api-server": "rw"},
    }


def test_every_variable_can_be_looked_up() -> None:
    """.env.example names exactly the variables of docker-compose.yaml, with the same defaults, and sets none."""
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert [line for line in example.splitlines() if line and not line.startswith("#")] == []
    offered = dict(re.findall(r"^# (\w+)=(\S*)", example, re.MULTILINE))
    wanted = variables(TEXT)
    assert set(offered) == set(wanted)
    switch = {"LOCALCLOUD": "0", "CONNECTIONS": "./connections", "GRANT": "grant.yaml"}
    assert offered == {**wanted, **switch}


def test_one_variable_file_switches_to_google() -> None:
    """The three variables take the local cloud away and put the user's connections and grant in its place."""
    assert SERVICES["localcloud"]["scale"] == "${LOCALCLOUD:-1}"
    for name in AIRFLOW:
        assert "${CONNECTIONS:-connections}:/opt/airflow/connections:ro" in SERVICES[name]["volumes"]
        assert SERVICES[name]["environment"]["AIRFLOW__AIRFLOW_TPU__GRANT"] == "${GRANT:-local.yaml}"
    assert {name for name, service in SERVICES.items() if "localcloud" in service.get("depends_on", {})} == set()


def test_the_images_are_built_as_the_compose_file_says() -> None:
    """The Dockerfile has the stages that are built, the same base image, and ends each of them as a user."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    base = "apache/airflow:3.3.2-python3.12"
    assert re.findall(r"^ARG BASE_IMAGE=(.*)$", dockerfile, re.MULTILINE) == [base]
    assert f"apache-airflow=={base.split(':')[1].split('-')[0]}" in (ROOT / "requirements.txt").read_text("utf-8")
    stages = {stage: body for stage, body in re.findall(r"AS (\w+)\n(.*?)(?=\nFROM|\Z)", dockerfile, re.DOTALL)}
    built = {name: service["build"] for name, service in SERVICES.items() if "build" in service}
    assert {build["target"] for build in built.values()} == {"airflow", "localcloud"} <= set(stages)
    assert {default(build["args"]["BASE_IMAGE"]) for build in built.values()} == {base}
    for target in ("airflow", "localcloud"):
        assert re.findall(r"^USER (\w+)$", stages[target], re.MULTILINE)[-1] == "airflow"


def test_no_file_of_this_machine_gets_into_an_image() -> None:
    """The build context is a list of what goes in, and what the Dockerfile copies is on it."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {name for name in let_in if not (ROOT / name).exists()} == set()
    assert let_in & {".env", "connections", ".git"} == set()
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]
    ]
    missing = {path for word in copied if let_in.isdisjoint({path := word.removeprefix("./"), path.split("/")[0]})}
    assert missing == set()
