# SPDX-License-Identifier: Apache-2.0
"""Cloud Storage as this project uses it: small JSON objects with generations, listings, ends of long objects."""

from __future__ import annotations

import gzip
import json
import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.google.cloud.hooks.gcs import GCSHook
from google.cloud.storage import Client

from airflow_tpu import settings
from airflow_tpu.clients.endpoints import check_storage_url, parse_options
from airflow_tpu.clients.storage_session import StorageSession
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.hooks.bucket_facts import TIMEOUT, BucketFacts, split_uri
from airflow_tpu.hooks.google_connection import GoogleConnection
from airflow_tpu.hooks.refusals import typed_refusals

if TYPE_CHECKING:
    from google.api_core.client_options import ClientOptions
    from google.cloud.storage import Bucket

_REDIRECTS = ("STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
"""Where Google's client sends its requests instead, tokens included (``google/cloud/storage/_helpers.py``)."""

_WRITE = "airflow-tpu-write"
"""Metadata of an object: which write made it."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a listing.

    :param name: object name without the bucket.
    :param size: bytes.
    :param crc32c: base64, as Cloud Storage reports it; empty where the bucket has a customer-managed key.
    :param generation: changes with every write.
    """

    name: str
    size: int
    crc32c: str
    generation: int


@dataclass(frozen=True)
class StoredJSON:
    """A JSON object and the generation it was read at."""

    data: dict[str, Any]
    generation: int


def _listed(item: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(item["name"], int(item["size"]), item.get("crc32c", ""), int(item["generation"]))


class ArtifactsHook(GoogleConnection, GCSHook):
    """Cloud Storage through the same connection as the TPU API.

    Unlike ``STORAGE_EMULATOR_HOST``, an endpoint in the connection redirects this connection only, not every client
    of the process (remote logging included).

    :param gcp_conn_id: connection of type ``google_cloud_platform``.
    :param impersonation_chain: service account to impersonate.
    """

    def get_client_options(self, api_endpoint_override: str | None = None) -> ClientOptions:
        """Client options with the connection's ``storage_api_endpoint`` when it has one.

        :raises ConfigError: an access token would travel without TLS, to that endpoint or to the one which an
            environment variable names.
        """
        options = parse_options(self._get_field, settings.insecure_hosts())
        if not options.storage_api_endpoint:
            faults: list[Fault] = []
            for name in _REDIRECTS:
                check_storage_url(name, os.environ.get(name, ""), options.anonymous, faults)
            if faults:
                raise ConfigError(faults, "the environment of Airflow")
        return super().get_client_options(options.storage_api_endpoint or api_endpoint_override)

    def get_conn(self) -> Client:
        """Google's client, over a session that tells refused credentials and forbidden projects apart."""
        if not self._conn:
            credentials = self.get_credentials()
            self._conn = Client(
                credentials=credentials,
                project=self.project_id,
                client_options=self.get_client_options(),
                _http=StorageSession(credentials),  # type: ignore[no-untyped-call]  # Google's own
            )
            # For its traces it would ask for the metadata of each bucket, and again after each object that is missing.
            self._conn._bucket_metadata_cache = None
        return self._conn

    @cached_property
    def facts(self) -> BucketFacts:
        """What buckets are, and how much they hold."""
        return BucketFacts(self._client)

    @typed_refusals
    def listing(self, uri: str) -> list[ObjectInfo]:
        """Every object whose URI begins with this text, all pages."""
        bucket, _, prefix = uri.removeprefix("gs://").partition("/")
        fields = "items(name,size,crc32c,generation),nextPageToken"
        blobs = self._client.list_blobs(bucket, prefix=prefix or None, fields=fields, timeout=TIMEOUT)
        # As the answer has them: an object of the client for each of ten thousand names takes longer than the requests.
        return [_listed(item) for page in blobs.pages for item in page.raw_page.get("items", ())]

    @typed_refusals
    def read_json(self, uri: str) -> StoredJSON | None:
        """A JSON object, None when there is none.

        :raises ValueError: it is not JSON.
        """
        from google.api_core.exceptions import NotFound

        bucket, name = split_uri(uri)
        blob = self._bucket(bucket).blob(name)
        try:
            text = blob.download_as_bytes(timeout=TIMEOUT)
        except NotFound:
            return None
        try:
            return StoredJSON(json.loads(text), int(blob.generation))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    @typed_refusals
    def read_gzip(self, uri: str) -> StoredJSON | None:
        """A JSON object that :meth:`write_gzip` has written, None when there is none.

        :raises ValueError: it is no compressed JSON.
        """
        from google.api_core.exceptions import NotFound

        bucket, name = split_uri(uri)
        blob = self._bucket(bucket).blob(name)
        try:
            packed = blob.download_as_bytes(timeout=TIMEOUT)
        except NotFound:
            return None
        try:
            return StoredJSON(json.loads(gzip.decompress(packed)), int(blob.generation))
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{uri} is not compressed: {error}") from error

    @typed_refusals
    def read_start(self, uri: str, size: int) -> bytes | None:
        """The first bytes of an object, None when there is none."""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        bucket, name = split_uri(uri)
        try:
            return bytes(self._bucket(bucket).blob(name).download_as_bytes(end=size - 1, timeout=TIMEOUT))
        except NotFound:
            return None
        except RequestRangeNotSatisfiable:
            return b""  # it is empty

    @typed_refusals
    def read_end(self, uri: str, size: int = 8192) -> bytes | None:
        """The last bytes of an object, None when there is none."""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        bucket, name = split_uri(uri)
        blob = self._bucket(bucket).blob(name)
        try:
            blob.reload(timeout=TIMEOUT)
            return bytes(blob.download_as_bytes(start=max(0, blob.size - size), timeout=TIMEOUT))
        except NotFound:
            return None
        except RequestRangeNotSatisfiable:
            return b""  # it is empty

    @typed_refusals
    def write_json(self, uri: str, data: Mapping[str, Any], generation: int | None = None) -> int | None:
        """Write a JSON object.

        :param uri: where.
        :param data: what; keys are sorted, so that the same data is the same object.
        :param generation: write only over this generation (0: only if absent); None writes unconditionally.
        :return: the new generation, or None when the precondition failed: another writer was faster, perhaps with the
            same content.
        """
        from google.api_core.exceptions import PreconditionFailed
        from google.cloud.storage.retry import DEFAULT_RETRY

        bucket, name = split_uri(uri)
        blob = self._bucket(bucket).blob(name)
        blob.metadata = {_WRITE: uuid.uuid4().hex}
        body = json.dumps(data, sort_keys=True, indent=1) + "\n"
        try:
            blob.upload_from_string(
                body, "application/json", if_generation_match=generation, timeout=TIMEOUT, retry=DEFAULT_RETRY
            )
        except PreconditionFailed:
            return self._own_lost_answer(uri, data, blob.metadata[_WRITE])
        return int(blob.generation)

    @typed_refusals
    def write_gzip(self, uri: str, data: Mapping[str, Any], generation: int) -> int | None:
        """Write a large JSON object compressed, once: a copy that a later writer makes again needs no second try.

        :param generation: write only over this generation (0: only if absent).
        :return: the new generation, or None when the precondition failed.
        """
        from google.api_core.exceptions import PreconditionFailed

        bucket, name = split_uri(uri)
        blob = self._bucket(bucket).blob(name)
        body = gzip.compress(json.dumps(data, sort_keys=True, separators=(",", ":")).encode(), mtime=0)
        try:
            blob.upload_from_string(
                body, "application/gzip", if_generation_match=generation, timeout=TIMEOUT, retry=None
            )
        except PreconditionFailed:
            return None
        return int(blob.generation)

    @typed_refusals
    def remove(self, uri: str, generation: int | None = None) -> None:
        """Remove an object; removing a missing one succeeds.

        :param uri: which.
        :param generation: remove only this generation; one that was written since stays.
        """
        from google.api_core.exceptions import NotFound, PreconditionFailed

        bucket, name = split_uri(uri)
        try:
            self._bucket(bucket).blob(name).delete(timeout=TIMEOUT, if_generation_match=generation)
        except (NotFound, PreconditionFailed):
            self.log.debug("%s is gone already, or has been written again", uri)

    def _own_lost_answer(self, uri: str, data: Mapping[str, Any], write: str) -> int | None:
        # A write whose answer was lost is repeated by the client and then fails its own precondition. Equal content is
        # not enough to tell it from another writer's: of two that make the same change, one has to lose.
        found = self.read_json(uri)
        if found is None or found.data != data:
            return None
        bucket, name = split_uri(uri)
        stored = self._bucket(bucket).get_blob(name, timeout=TIMEOUT)
        is_own = stored is not None and (stored.metadata or {}).get(_WRITE) == write
        return int(stored.generation) if is_own else None

    def _bucket(self, name: str) -> Bucket:
        return self._client.bucket(name)

    @cached_property
    def _client(self) -> Any:
        return self.get_conn()
