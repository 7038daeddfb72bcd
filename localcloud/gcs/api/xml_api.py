"""Objects by the XML interface: ``/BUCKET/OBJECT``. Signed URLs, parallel uploads and TensorFlow's reads use it."""

from __future__ import annotations

from urllib.parse import quote

from multidict import CIMultiDict

from localcloud.gcs.api import inserts, media, uploads
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.digests import Claims
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Draft, Generation
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

_FIELDS = {**media.FIELDS, "storageClass": "X-Goog-Storage-Class"}
_CUSTOM = "x-goog-meta-"


async def get(store: Store, call: Call) -> Reply:
    """Answer GET and HEAD.

    :raises GCSError: 404, 412 or 416.
    """
    row = objects.find(store, call.bucket, call.object, call.number("generation"))
    Preconditions.of_headers(call.headers).check_read(row)
    return media.read(store, call, row)


async def put(store: Store, call: Call) -> Reply:
    """Answer PUT of a whole object.

    :raises GCSError: 400, 404 or 412.
    """
    draft = draft_of(call)
    row = await inserts.receive(store, draft, Claims.of({}, call.headers.items()), call.body)
    return Reply(200, identity(row))


async def delete(store: Store, call: Call) -> Reply:
    """Answer DELETE.

    :raises GCSError: 404 or 412.
    """
    conditions = Preconditions.of_headers(call.headers)
    objects.delete(store, call.bucket, call.object, call.number("generation"), conditions)
    return Reply(204)


async def start(store: Store, call: Call) -> Reply:
    """Answer POST with ``x-goog-resumable: start``, which opens a resumable session.

    :raises GCSError: 400, 404 or 412.
    """
    await call.read()
    if call.headers.get("x-goog-resumable", "").lower() != "start":
        raise GCSError(400, "invalid", "POST on an object needs x-goog-resumable: start, uploads or uploadId")
    session = uploads.start(store, draft_of(call), None)
    reply = Reply(201)
    place = f"{call.base_url}/{call.bucket}/{quote(call.object, safe='/')}"
    reply.headers["Location"] = f"{place}?upload_id={session.id}"
    return reply


def draft_of(call: Call) -> Draft:
    """Return the object that the headers of a request describe."""
    meta: dict[str, object] = {key: call.headers[name] for key, name in _FIELDS.items() if name in call.headers}
    meta.setdefault("contentType", inserts.DEFAULT_TYPE)
    custom = {key.lower(): value for key, value in call.headers.items() if key.lower().startswith(_CUSTOM)}
    meta["metadata"] = {key.removeprefix(_CUSTOM): value for key, value in custom.items()} or None
    return Draft(call.bucket, call.object, meta, Preconditions.of_headers(call.headers))


def identity(row: Generation) -> CIMultiDict[str]:
    """Return the headers that tell a writer what it has written."""
    headers = media.headers_of(row)
    return CIMultiDict([(key, value) for key, value in headers.items() if key == "ETag" or key.startswith("X-Goog-")])
