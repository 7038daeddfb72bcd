# SPDX-License-Identifier: Apache-2.0
"""What Cloud Storage tells of buckets: where they are, whose, what they keep and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.core.catalogue.transfer_rates import StoredSize
from airflow_tpu.core.ledger.bucket_retention import BucketRetention
from airflow_tpu.errors import AccessDenied, ConfigError, Fault

if TYPE_CHECKING:
    import datetime as dt

    from google.cloud.storage import Bucket

TIMEOUT = 60.0
"""Seconds one request may take."""

_READERS_PAY = "requester pays"
"""Google's words for it."""

COUNTED = 100_000
"""How many objects are looked at to tell how much a folder takes: a hundred requests at the most."""


def split_uri(uri: str) -> tuple[str, str]:
    """``gs://bucket/a/b`` as bucket and object name.

    :raises ConfigError: it is not a ``gs://`` URI.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    if scheme != "gs" or not bucket:
        raise ConfigError([Fault("uri", uri, "is not a gs:// URI", ("gs://bucket/prefix",))])
    return bucket, name.strip("/")


class BucketFacts:
    """Reads what is known of a bucket; each method returns None for what the caller may not read.

    The metadata of a bucket are asked for once, which is enough for a task.

    :param client: Google's client of Cloud Storage.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._found: dict[str, Bucket] = {}

    def location(self, bucket: str) -> str | None:
        """Location of a bucket such as ``US-CENTRAL1``; None when it may not be read (unknown, never assumed).

        :raises ConfigError: the bucket does not exist.
        """
        found = self._metadata("bucket", bucket)
        return None if found is None else str(found.location).upper()

    def project_number(self, bucket: str) -> str | None:
        """Number of the project that a bucket belongs to; None when it may not be read.

        :raises ConfigError: the bucket does not exist.
        """
        found = self._metadata("bucket", bucket)
        return None if found is None or not found.project_number else str(found.project_number)

    def retention(self, bucket: str) -> BucketRetention | None:
        """What a bucket keeps of deleted and replaced objects; None when it may not be read.

        :raises ConfigError: the bucket does not exist.
        """
        found = self._metadata("bucket", bucket)
        if found is None:
            return None
        soft = found.soft_delete_policy.retention_duration_seconds
        return BucketRetention(int(soft or 0), int(found.retention_period or 0), bool(found.versioning_enabled))

    def amount(self, uri: str, limit: int = COUNTED) -> StoredSize | None:
        """How much a folder, or else an object, takes; None when it may not be listed.

        :param uri: of the folder or the object.
        :param limit: how many objects are looked at.
        """
        from google.api_core.exceptions import Forbidden

        bucket, name = split_uri(uri)
        folder = {"prefix": f"{name}/" if name else None, "fields": "items(name,size),nextPageToken"}
        try:
            sizes = [
                blob.size for blob in self._client.list_blobs(bucket, max_results=limit, timeout=TIMEOUT, **folder)
            ]
            alone = self._client.bucket(bucket).get_blob(name, timeout=TIMEOUT) if name and not sizes else None
        except Forbidden:
            return None
        return StoredSize(sum(sizes) if alone is None else alone.size, complete=len(sizes) < limit)

    def fault(self, field: str, bucket: str) -> Fault | None:
        """Why a run can use no object of a bucket; None if nothing is known against it.

        :param field: of the form, that names the bucket.
        :param bucket: its name.
        """
        problem = "names a bucket whose readers pay (Requester Pays), and a run names no project that pays: "
        advice = "switch that off for the bucket, or take another one"
        try:
            found = self._metadata(field, bucket)
        except ConfigError as error:
            return error.faults[0]
        except AccessDenied as error:
            if _READERS_PAY not in str(error).lower():
                raise
            return Fault(field, f"gs://{bucket}", problem + advice)
        return Fault(field, f"gs://{bucket}", problem + advice) if found and found.requester_pays else None

    def begins(self, start: str) -> bool | None:
        """Whether the URI of any object begins with a text; None when the bucket may not be listed.

        :param start: ``gs://bucket``, and the beginning of a name.
        """
        from google.api_core.exceptions import Forbidden

        bucket, _, prefix = start.removeprefix("gs://").partition("/")
        options = {"max_results": 1, "fields": "items(name)", "timeout": TIMEOUT}
        try:
            return any(True for _ in self._client.list_blobs(bucket, prefix=prefix or None, **options))
        except Forbidden:
            return None

    def written_since(self, start: str, since: dt.datetime, limit: int = COUNTED) -> list[str] | None:
        """URIs of objects that were written after an instant; None when the bucket may not be listed.

        :param start: beginning of their URIs.
        :param since: aware instant, by the clock of the bucket.
        :param limit: how many objects are looked at.
        """
        from google.api_core.exceptions import Forbidden

        bucket, _, prefix = start.removeprefix("gs://").partition("/")
        options = {"max_results": limit, "fields": "items(name,updated),nextPageToken", "timeout": TIMEOUT}
        try:
            blobs = self._client.list_blobs(bucket, prefix=prefix or None, **options)
            return [f"gs://{bucket}/{blob.name}" for blob in blobs if blob.updated > since]
        except Forbidden:
            return None

    def soft_deleted(self, uri: str) -> int | None:
        """Bytes that the bucket's soft-delete policy still keeps of removed objects; None where Google does not tell.

        :param uri: every object whose URI begins with this text.
        """
        from google.api_core.exceptions import BadRequest, Forbidden, PreconditionFailed

        bucket, _, prefix = uri.removeprefix("gs://").partition("/")
        wanted = {"prefix": prefix or None, "soft_deleted": True, "fields": "items(name,size),nextPageToken"}
        try:
            return sum(int(blob.size) for blob in self._client.list_blobs(bucket, timeout=TIMEOUT, **wanted))
        except (BadRequest, Forbidden, PreconditionFailed):
            return None

    def _metadata(self, field: str, bucket: str) -> Bucket | None:
        from google.api_core.exceptions import Forbidden, NotFound

        try:
            if bucket not in self._found:
                self._found[bucket] = self._client.get_bucket(bucket, timeout=TIMEOUT)
            return self._found[bucket]
        except Forbidden:
            return None
        except NotFound as error:
            fault = Fault(field, f"gs://{bucket}", "names a bucket that does not exist")
            raise ConfigError([fault]) from error
