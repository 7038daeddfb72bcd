# SPDX-License-Identifier: Apache-2.0
"""Storage servers with one bucket, for tests that wait for other processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from google.cloud.exceptions import NotFound
from google.cloud.storage import Blob, Bucket

from airflow_tpu.core.run.manifest import VERSION, Manifest, verify
from localcloud.clock import RealClock
from localcloud.faults import FaultRegistry
from localcloud.gcs import GCSServer
from localcloud.testing import storage_bucket

PREFIX = "runs/run/checkpoints"
URI = f"gs://checkpoints/{PREFIX}"
T = TypeVar("T")
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"


class BucketServer:
    """A storage server with scripted faults and a count of its requests.

    :param root: where it keeps its objects.
    :param bucket: name of its one bucket.
    """

    def __init__(self, root: Path, bucket: str) -> None:
        self.faults = FaultRegistry()
        self.url = ""
        self.name = bucket
        self.server = GCSServer(root, RealClock(), self.faults)
        self.server.create_bucket(bucket)

    def fault(self, action: str, times: int = 1, after: int = 0, **match: str) -> None:
        """Script a fault."""
        spec = {"point": "gcs.request", "match": match, "times": times, "after": after, "params": {"action": action}}
        self.faults.add(spec)

    def encrypt(self) -> None:
        """Give the bucket a customer-managed key, as Google's client does."""
        bucket = storage_bucket(self.url, self.name)
        bucket.default_kms_key_name = KEY
        bucket.patch()

    def all_objects(self, prefix: str) -> list[Blob]:
        """Everything whose name begins so."""
        return list(storage_bucket(self.url, self.name).list_blobs(prefix=prefix))

    @property
    def requests(self) -> Mapping[str, int]:
        """How many requests of each kind the server has seen."""
        requests: Mapping[str, int] = self.server.stats()["requests"]
        return requests


class CheckpointServer(BucketServer):
    """A storage server in a thread of its own, with the bucket ``checkpoints``.

    :param root: where it keeps its objects.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, "checkpoints")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> CheckpointServer:
        self._thread.start()
        self.url = self.run(self.server.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def bucket(self) -> Bucket:
        """The bucket, by Google's own client."""
        return storage_bucket(self.url, "checkpoints")

    @property
    def objects(self) -> dict[str, Blob]:
        """Everything below the run's prefix, by its name there."""
        return {blob.name.removeprefix(f"{PREFIX}/"): blob for blob in self.bucket.list_blobs(prefix=f"{PREFIX}/")}

    @property
    def folders(self) -> set[str]:
        """Where there are files of checkpoints, complete or not."""
        parts = [name.split("/") for name in self.objects]
        return {"/".join(names[:2]) for names in parts if names[0] != "attempts"}

    @property
    def manifests(self) -> dict[str, Any]:
        """Content of every manifest, by its name."""
        found = {}
        for name, blob in self.objects.items():
            if "MANIFEST" in name:
                with contextlib.suppress(NotFound):  # the mirror has removed it since the listing
                    found[name] = json.loads(blob.download_as_bytes())
        return found

    @property
    def newest(self) -> tuple[int, str] | None:
        """Step and folder of the newest checkpoint whose every file is there as its manifest says."""
        stored = self.objects
        whole = []
        for name, manifest in self.manifests.items():
            if manifest.get("schema_version", VERSION) != VERSION:
                continue  # another release's: it counts for that one only
            folder = name.rpartition("/")[0]
            files = {path.removeprefix(f"{folder}/"): blob for path, blob in stored.items()}
            if not verify(Manifest.from_json(manifest), files):
                whole.append((int(manifest["step"]), folder))
        return max(whole, default=None)

    @property
    def steps(self) -> list[int]:
        """Steps of the checkpoints that have a manifest, oldest first."""
        return sorted(manifest["step"] for manifest in self.manifests.values())
