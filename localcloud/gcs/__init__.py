"""A small Google Cloud Storage for one machine: what the project relies on, exactly; nothing else."""

from localcloud.gcs.server import GCSServer

__all__ = ["GCSServer"]
