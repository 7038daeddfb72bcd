# SPDX-License-Identifier: Apache-2.0
"""The form of the connection type *Google Cloud TPU*: Google's own fields, and ours for another endpoint."""

from __future__ import annotations

from typing import Any

from airflow_tpu.clients.endpoints import SSH_PORT

EXAMPLES = {
    "project": "my-tpu-project",
    "key_path": "/opt/airflow/connections/key.json",
    "keyfile_dict": '{"type": "service_account", ...}',
    "key_secret_name": "airflow-tpu-key",
    "impersonation_chain": "airflow@my-tpu-project.iam.gserviceaccount.com",
    "scope": "https://www.googleapis.com/auth/cloud-platform",
    "num_retries": "5",
    "tpu_api_endpoint": "127.0.0.1:8085",
    "tpu_insecure": "true",
    "storage_api_endpoint": "http://127.0.0.1:9023",
    "resource_manager_endpoint": "http://127.0.0.1:9024",
    "is_anonymous": "true",
    "ssh_port": "2222",
}
"""One value for each key of the extra, as docs/configuration.md shows it."""

SSH_FIELDS = {
    "login": ("trainer", "User that is created on the TPU VM and logs in."),
    "extra.private_key": (
        "-----BEGIN OPENSSH PRIVATE KEY----- ...",
        "Key without a passphrase, as ssh-keygen writes it. Its public half is put into the TPU's metadata; the "
        "private half is masked by Airflow and stays in the connection.",
    ),
}
"""What is read of the connection of Airflow's own type *SSH*: an example and its meaning by field."""


def connection_types() -> list[dict[str, Any]]:
    """What Airflow's providers manager reads; a connection of type ``google_cloud_platform`` serves as well."""
    return [
        {
            "connection-type": "google_cloud_tpu",
            "hook-class-name": "airflow_tpu.hooks.tpu.CloudTPUHook",
            "hook-name": "Google Cloud TPU",
            "ui-field-behaviour": {
                "hidden-fields": ["host", "schema", "login", "password", "port", "extra"],
                "relabeling": {},
                "placeholders": {},
            },
            "conn-fields": {**_google(), **_ours()},
        }
    ]


def _google() -> dict[str, dict[str, Any]]:
    return {
        "project": _field("Project id", "Of the grant."),
        "key_path": _field("Key file path", "Empty: the machine's own account, which is safer than a key."),
        "keyfile_dict": _field("Key file JSON", "Kept encrypted.", format="password"),
        "key_secret_name": _field("Key file secret", "Name of a secret in Secret Manager."),
        "impersonation_chain": _field("Impersonation chain", "Service account to impersonate."),
        "scope": _field("Scopes", "Separated by commas."),
        "num_retries": _field("Retries", "Of Google's own client.", kind="integer", default=5),
    }


def _ours() -> dict[str, dict[str, Any]]:
    elsewhere = "Only for a cloud that is not Google's; leave empty."
    return {
        "tpu_api_endpoint": _field("TPU API endpoint", f"host:port. {elsewhere}"),
        "tpu_insecure": _field("TPU API without TLS", elsewhere, kind="boolean", default=False),
        "storage_api_endpoint": _field("Cloud Storage endpoint", f"URL. {elsewhere}"),
        "resource_manager_endpoint": _field("Resource Manager endpoint", f"URL. {elsewhere}"),
        "is_anonymous": _field("No credentials", elsewhere, kind="boolean", default=False),
        "ssh_port": _field("SSH port of the TPU VMs", f"Almost always {SSH_PORT}.", kind="integer", default=SSH_PORT),
    }


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}
