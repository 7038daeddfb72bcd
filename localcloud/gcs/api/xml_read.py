# SPDX-License-Identifier: Apache-2.0
"""Reading an object by the XML interface: GET ``/BUCKET/OBJECT``, as TensorFlow's ``gs://`` reads all content.

Nothing else of the XML interface is here: no framework on a TPU VM calls it.
"""

from __future__ import annotations

from localcloud.gcs.api import media
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.store import Store


async def get(store: Store, call: Call) -> Reply:
    """Answer GET.

    :raises GCSError: 404 or 416.
    """
    return media.read(store, call, objects.find(store, call.bucket, call.object, call.number("generation")))
