# SPDX-License-Identifier: Apache-2.0
"""Refusals of the storage server, in the words of Google's JSON interface, and of the XML one for reads."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

# Reasons of the JSON interface and codes of the XML one:
# https://cloud.google.com/storage/docs/json_api/v1/status-codes and .../docs/xml-api/reference-status
_XML_CODES = {
    "forbidden": "AccessDenied",
    "invalid": "InvalidArgument",
    "rateLimitExceeded": "SlowDown",
    "requestedRangeNotSatisfiable": "InvalidRange",
    "backendError": "ServiceUnavailable",
}


class GCSError(Exception):
    """A request that is refused.

    :param status: HTTP status.
    :param reason: reason of the JSON interface, for example ``conditionNotMet``.
    :param message: sentence for people.
    :param xml_code: code of the XML interface where it does not follow from the reason.
    """

    def __init__(self, status: int, reason: str, message: str, xml_code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.xml_code = xml_code or _XML_CODES.get(reason, reason)

    def as_json(self) -> dict[str, Any]:
        """Return the body of the JSON interface."""
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}

    def as_xml(self) -> str:
        """Return the body of the XML interface."""
        text = escape(self.message)
        return f"<Error><Code>{self.xml_code}</Code><Message>{text}</Message><Details>{text}</Details></Error>"


def no_bucket() -> GCSError:
    """Return the refusal for a bucket that is not there."""
    return GCSError(404, "notFound", "The specified bucket does not exist.", "NoSuchBucket")


def no_object(bucket: str, name: str) -> GCSError:
    """Return the refusal for an object that is not there."""
    return GCSError(404, "notFound", f"No such object: {bucket}/{name}", "NoSuchKey")


def not_met() -> GCSError:
    """Return the refusal for a precondition that does not hold."""
    return GCSError(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")


def not_modified() -> GCSError:
    """Return the answer for a read of something the client has already."""
    return GCSError(304, "notModified", "")
