# SPDX-License-Identifier: Apache-2.0
"""Answers a request: finds its handler, applies scripted faults, writes errors as JSON or XML."""

from __future__ import annotations

from collections import Counter

from localcloud.clock import Clock
from localcloud.faults import FaultRegistry, FaultSpecError
from localcloud.gcs.protocol import batch
from localcloud.gcs.protocol.wire import Call, CutConnection, Reply
from localcloud.gcs.routes import Handler, route
from localcloud.gcs.storage import buckets
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.store import Store
from localcloud.rules.project import ProjectRules

# Google's texts: https://cloud.google.com/storage/docs/json_api/v1/status-codes
_REFUSALS = {
    "503": GCSError(503, "backendError", "We encountered an internal error. Please try again."),
    "429": GCSError(429, "rateLimitExceeded", "The object exceeded the rate limit for object mutation operations."),
    "403": GCSError(403, "forbidden", "The caller does not have access to the Google Cloud Storage object."),
}
_PAYER = "X-Goog-User-Project"
# The names of these stand in the body: a fault that asks for a name waits until it has been read.
_NAMED_IN_BODY = frozenset({"buckets.insert", "objects.insert", "uploads.start"})

_RIGHTS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "create", "PATCH": "update", "DELETE": "delete"}


class RequestDispatcher:
    """Answers requests against one store.

    :param store: database and contents.
    :param clock: for delays.
    :param faults: scripted faults at the point ``gcs.request``.
    :param rules: of the project whose buckets these are, None for one that lacks nothing.
    """

    def __init__(self, store: Store, clock: Clock, faults: FaultRegistry, rules: ProjectRules | None = None) -> None:
        self.store = store
        self._refusal = rules.storage_refusal() if rules is not None else None
        self.requests: Counter[str] = Counter()
        self._clock = clock
        self._faults = faults

    async def answer(self, call: Call) -> Reply:
        """Return the reply to a request, refusals included.

        :raises CutConnection: if a fault keeps the reply from arriving.
        :raises ClientGone: if the client left in the middle of its body.
        """
        try:
            return await self._attempt(call)
        except GCSError as error:
            return _refusal(call, error)

    async def _attempt(self, call: Call) -> Reply:
        handler = self._handler(call)
        self.requests[call.op] += 1
        call.on_named = self._strike
        if call.object or call.op not in _NAMED_IN_BODY:
            await self._strike(call)
        if self._refusal is not None and call.bucket:
            raise GCSError(403, self._refusal.reason, self._refusal.text, self._refusal.xml_code)
        buckets.check_payer(self.store, call.bucket, call.query.get("userProject") or call.headers.get(_PAYER))
        reply = await handler(self.store, call)
        if call.lost:
            reply.close()
            raise CutConnection
        return reply

    async def _strike(self, call: Call) -> None:
        """Apply the scripted fault for this request, now that its names are known."""
        fault = self._faults.take("gcs.request", method=call.method, bucket=call.bucket, object=call.object, op=call.op)
        if fault is None:
            return
        action = str(fault.params.get("action"))
        if action == "refuse":
            params = fault.params
            raise GCSError(int(params["status"]), str(params.get("reason", "forbidden")), str(params["message"]))
        if action in _REFUSALS:
            raise _forbidden(call) if action == "403" else _REFUSALS[action]
        if action == "delay":
            await self._clock.sleep(float(fault.params.get("seconds", 1.0)))
        elif action == "abort":
            call.cut_after = int(fault.params.get("after_bytes", 0))
            if call.cut_after <= call.received:
                raise CutConnection
        elif action == "lose-response":
            call.lost = True
        else:
            raise FaultSpecError(f"fault {fault.id}: unknown action {action!r} at gcs.request")

    def _handler(self, call: Call) -> Handler:
        if call.method == "POST" and batch.PATH.fullmatch(call.path):
            call.op = "batch"
            return self._batch
        return route(call)

    async def _batch(self, store: Store, call: Call) -> Reply:
        return await batch.answer_all(self.answer, call)


def _forbidden(call: Call) -> GCSError:
    """Return Google's refusal of an account without a role, which names the right that is missing."""
    kind = "buckets" if call.op.startswith("buckets.") else "objects"
    right = f"storage.{kind}.{'list' if call.op.endswith('.list') else _RIGHTS[call.method]}"
    what = "bucket" if kind == "buckets" else "object"
    text = f"The caller does not have {right} access to the Google Cloud Storage {what}."
    return GCSError(403, "forbidden", f"{text} Permission '{right}' denied on resource (or it may not exist).")


def _refusal(call: Call, error: GCSError) -> Reply:
    if error.status == 304:
        return Reply(304)
    reply = Reply.xml(error.as_xml(), error.status) if not call.is_json else Reply.json(error.as_json(), error.status)
    if error.status == 416:
        reply.headers["Content-Range"] = "bytes */*"
    return reply
