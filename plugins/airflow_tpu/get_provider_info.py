# SPDX-License-Identifier: Apache-2.0
"""What Airflow shows about this package when it is installed: ``airflow providers get airflow-provider-tpu``."""

from __future__ import annotations

from typing import Any

from airflow_tpu import settings
from airflow_tpu.connection_type import connection_types

_INTEGRATION = "Google Cloud TPU"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description; named by the entry point ``apache_airflow_provider``."""
    return {
        "package-name": "airflow-provider-tpu",
        "name": "Cloud TPU",
        "description": "Train on the Cloud TPUs of a TPU Research Cloud grant.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://cloud.google.com/tpu/docs",
                "tags": ["gcp"],
            }
        ],
        "operators": [
            _modules(
                "operators",
                "artifacts",
                "grant",
                "grant_watch",
                "lease",
                "ledger",
                "model",
                "reaper",
                "run",
                "tpu",
                "verdict",
            )
        ],
        "hooks": [_modules("hooks", "artifacts", "tpu")],
        "triggers": [_modules("triggers", "capacity", "run", "tpu")],
        "connection-types": connection_types(),
        "extra-links": [
            "airflow_tpu.links.artifacts.CloudTPUArtifactsLink",
            "airflow_tpu.links.ledger.CloudTPUUsageLink",
            "airflow_tpu.links.tpu.CloudTPUNodeLink",
        ],
        "cli": ["airflow_tpu.cli.airflow_commands.get_commands"],
        "config": {"airflow_tpu": {"description": "Training on TPUs of a grant.", "options": _options()}},
    }


def _modules(role: str, *nouns: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": [f"airflow_tpu.{role}.{noun}" for noun in nouns]}


def _options() -> dict[str, dict[str, Any]]:
    return {**_places(), **_habits()}


def _places() -> dict[str, dict[str, Any]]:
    return {
        "include_dir": _option(
            "Directory of the project, with train and grants in it; with remote or catalogue, these replace the "
            "package's own. Empty: the one beside the plugins folder, else the copy inside the package.",
            "/opt/airflow/include",
        ),
        "grant": _option(
            "Where the grant is: a file in include/grants (grant.yaml if empty), variable:NAME for an Airflow Variable "
            "with the same YAML, or the gs:// URI of an object. The form shows it if it is a file, or if a file in "
            "include/grants has the name of the object.",
            "variable:trc_grant",
            settings.DEFAULT_GRANT,
        ),
        "catalogue": _option(
            "Folder with a catalogue of your own: generations.csv, accelerators.csv, prices.csv, "
            "runtime_versions.csv, transfer.csv or frameworks.csv in it replaces that file of include/catalogue as a "
            "whole.",
            "/opt/airflow/include/my-catalogue",
        ),
        "insecure_hosts": _option(
            "Hosts that may be reached without TLS or credentials beside loopback and private addresses, "
            "separated by commas.",
            "localcloud",
        ),
        "script_secrets": _option(
            "Connections and Variables that the field secrets may name, as patterns separated by commas. Empty: every "
            "Variable, and every connection that is not Airflow's own by its type.",
            "wandb_*.password, variable:hf_*",
        ),
    }


def _habits() -> dict[str, dict[str, Any]]:
    return {
        "inline_seconds": _option(
            "Seconds that a task waits in its worker before it defers to a trigger.",
            "60",
            settings.DEFAULT_INLINE_SECONDS,
        ),
        "retry_seconds": _option(
            "Seconds before a retry that may soon help: one at most after a loss of the TPU, twenty times as long "
            "for capacity and quota.",
            "30",
            settings.DEFAULT_RETRY_SECONDS,
        ),
        "airflow_name": _option(
            "What people call this Airflow, in the messages of other Airflows that use the same project and bucket.",
            "nightly on Composer",
        ),
        "failure_notifiers": _option(
            "Recipients of failures and notices, connection:target separated by commas: an SMTP connection and "
            "an e-mail address, a Slack connection and a channel, or a Slack webhook's connection alone. The "
            "provider must be installed: apache-airflow-providers-smtp or -slack.",
            "smtp_default:team@example.org, slack_default:#tpu",
        ),
        "event_hold_seconds": _option(
            "Seconds after a deferral before which no trigger fires.",
            "30",
            settings.DEFAULT_EVENT_HOLD_SECONDS,
        ),
    }


def _option(description: str, example: str, default: str | float = "") -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "float" if isinstance(default, float) else "string",
        "example": example,
        "default": f"{default:g}" if isinstance(default, float) else default,
    }
