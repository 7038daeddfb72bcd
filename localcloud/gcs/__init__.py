# SPDX-License-Identifier: Apache-2.0
"""A small Google Cloud Storage for one machine: the requests that the project and frameworks on TPU VMs make."""

from localcloud.gcs.server import GCSServer

__all__ = ["GCSServer"]
