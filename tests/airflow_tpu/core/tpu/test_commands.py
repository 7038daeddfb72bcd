# SPDX-License-Identifier: Apache-2.0
"""Commands that a person copies into a terminal."""

from __future__ import annotations

import shlex

from airflow_tpu.core.tpu.commands import ssh_command, tensorboard_command
from airflow_tpu.core.tpu.resource_name import ResourceName

NODE = ResourceName.parse("projects/project-a/locations/us-central1-f/nodes/tpu-train-1")


def test_ssh_command_names_everything_that_gcloud_would_guess() -> None:
    """Node, zone, project and worker are given, so no default of the user's gcloud leads elsewhere."""
    expected = "gcloud compute tpus tpu-vm ssh tpu-train-1 --zone=us-central1-f --project=project-a --worker=2"
    assert ssh_command(NODE, 2) == expected


def test_tensorboard_command_survives_the_shell() -> None:
    """A prefix with a blank or a quote is one word for the shell, as it is for Cloud Storage."""
    uri = "gs://bucket-a/it's a run/attempt-1"
    assert shlex.split(tensorboard_command(uri)) == ["tensorboard", "--logdir", f"{uri}/output"]
