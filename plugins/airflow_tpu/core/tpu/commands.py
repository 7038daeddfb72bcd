# SPDX-License-Identifier: Apache-2.0
"""Commands for a person's own terminal, ready to be copied: log in to a worker, look at a training's curves."""

from __future__ import annotations

import shlex

from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.protocol import OUTPUT_DIR


def ssh_command(node: ResourceName, worker: int = 0) -> str:
    """Log in to a worker of a TPU with Google's command line.

    :param node: the TPU.
    :param worker: number of the VM; a slice has several.
    """
    words = ["gcloud", "compute", "tpus", "tpu-vm", "ssh", node.id, f"--zone={node.zone}", f"--project={node.project}"]
    return shlex.join([*words, f"--worker={worker}"])


def tensorboard_command(artifacts_uri: str) -> str:
    """Show the TensorBoard events below the output of an attempt.

    :param artifacts_uri: where the attempt's artifacts are, ``gs://...``.
    """
    return shlex.join(["tensorboard", "--logdir", f"{artifacts_uri}/{OUTPUT_DIR}"])
