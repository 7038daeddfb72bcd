# SPDX-License-Identifier: Apache-2.0
"""Errors as Google sends them: a status with a code, a text and typed details.

``CloudError`` carries what goes over the wire; the functions below it write Google's texts. Wordings marked *attested*
were seen in public reports of real TPU users; the others are the local cloud's own and nothing should match on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from google.rpc import code_pb2, error_details_pb2, status_pb2

DOMAIN = "googleapis.com"


class CloudError(Exception):
    """A refusal by the local cloud.

    :param code: canonical status code, as in ``google.rpc.Code``.
    :param message: text for people.
    :param details: protobuf messages (``ErrorInfo``, ``QuotaFailure``, ...), sent in ``grpc-status-details-bin``.
    """

    def __init__(self, code: int, message: str, details: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)

    def status(self) -> status_pb2.Status:
        """Return the wire form."""
        status = status_pb2.Status(code=self.code, message=self.message)
        for detail in self.details:
            status.details.add().Pack(detail)
        return status


def eid(text: str) -> str:
    """Return the text with an error id appended, as most TPU errors carry one; the same text gets the same id."""
    return f"{text} [EID: 0x{hashlib.sha256(text.encode()).hexdigest()[:16]}]"


def error_info(reason: str, **metadata: str) -> Any:
    """Return an ``ErrorInfo`` detail of the TPU service."""
    return error_details_pb2.ErrorInfo(
        reason=reason, domain=DOMAIN, metadata={"service": "tpu.googleapis.com", **metadata}
    )


def invalid(text: str) -> CloudError:
    """Return INVALID_ARGUMENT."""
    return CloudError(code_pb2.INVALID_ARGUMENT, eid(text))


def precondition(text: str) -> CloudError:
    """Return FAILED_PRECONDITION."""
    return CloudError(code_pb2.FAILED_PRECONDITION, eid(text))


def not_found(name: str) -> CloudError:
    """Return NOT_FOUND for a resource name."""
    return CloudError(code_pb2.NOT_FOUND, eid(f"Resource '{name}' was not found"))


def already_exists(name: str) -> CloudError:
    """Return ALREADY_EXISTS for a resource name."""
    return CloudError(code_pb2.ALREADY_EXISTS, eid(f"Resource '{name}' already exists"))


def zone_denied(zone: str) -> CloudError:
    """Return what a zone answers that is unknown or not open to the project (attested)."""
    text = f"Permission denied on 'locations/{zone}' (or it may not exist)."
    return CloudError(code_pb2.PERMISSION_DENIED, text, [error_info("LOCATION_POLICY_VIOLATED", location=zone)])


def project_denied(project: str) -> CloudError:
    """Return what a project answers that is not the caller's."""
    text = f"Permission denied on resource project {project}."
    return CloudError(
        code_pb2.PERMISSION_DENIED, text, [error_info("CONSUMER_INVALID", consumer=f"projects/{project}")]
    )


def bad_type(name: str, zone: str) -> CloudError:
    """Return the refusal of an accelerator type (attested, 2025)."""
    return invalid(
        "Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "
        f'"{name}", could not be found in the zonal accelerator configurations for "{zone}"'
    )


def value_not_found(kind: str, value: str, code: int = code_pb2.NOT_FOUND) -> CloudError:
    """Return the template ``The "X" value "Y" was not found.`` (attested for GuestAttributes)."""
    return CloudError(code, eid(f'Cloud TPU received a bad request. The "{kind}" value "{value}" was not found.'))


def no_capacity(zone: str) -> CloudError:
    """Return the stock-out that arrives inside an operation (attested)."""
    text = (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are offered'
    )
    return CloudError(code_pb2.RESOURCE_EXHAUSTED, eid(text))


def quota_exceeded(metric: str, limit: int, scope: str) -> CloudError:
    """Return the refusal of a create call over quota (attested).

    :param scope: for example ``zone us-east1-d`` or ``region us-east1``.
    """
    text = f"Quota limit '{metric}' has been exceeded. Limit: {limit} in {scope}."
    failure = error_details_pb2.QuotaFailure()
    failure.violations.add(subject=scope, description=f"Quota '{metric}' exhausted. Limit {limit} in {scope}")
    return CloudError(code_pb2.RESOURCE_EXHAUSTED, eid(text), [failure])


def create_rate(limit: int) -> CloudError:
    """Return the refusal of too many creates in one minute (attested)."""
    text = f"Maximum number of CreateNode requests per minute has been exceeded. Limit: {limit}."
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = 60
    return CloudError(code_pb2.RESOURCE_EXHAUSTED, eid(text), [retry])


def unavailable(zone: str) -> CloudError:
    """Return the error of a call into a zone that is away."""
    return CloudError(code_pb2.UNAVAILABLE, f"The service is currently unavailable in location {zone}")


def internal() -> CloudError:
    """Return the bare internal error (attested)."""
    return CloudError(code_pb2.INTERNAL, eid("an internal error has occurred"))
