# SPDX-License-Identifier: Apache-2.0
"""Paths and ``gs://`` URIs that people type, checked before anything is created.

Bucket rules: https://cloud.google.com/storage/docs/buckets#naming; object rules:
https://cloud.google.com/storage/docs/objects#naming.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from airflow_tpu.core.request.fields import Invalid, plain

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")
_WILDCARDS = re.compile(r"[#\[\]*?]")
_FORBIDDEN_OBJECT = ".well-known/acme-challenge/"
_MODULE = re.compile(r"-m\s+(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_PATH_LIMIT = 700  # bytes; leaves room below Google's 1,024 for what is appended


def relative_path(value: Any) -> str:
    """A path inside a folder of ours: no way out of it, spaces and Unicode welcome.

    :raises Invalid: for an absolute path, ``..``, a backslash or a control character.
    """
    path = plain(value)
    _refuse_odd(path)
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise Invalid("must be relative", nearest=path.rstrip("/").rpartition("/")[2] or None)
    if "\\" in path:
        raise Invalid("has a backslash", nearest=path.replace("\\", "/"))
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Invalid("must not leave its folder by '..'")
    if not parts or path.endswith("/"):
        raise Invalid("names no file")
    return "/".join(parts)


def folder(value: Any) -> str:
    """A folder inside a folder of ours; a slash at its end is none of its name.

    :raises Invalid: as :func:`relative_path`.
    """
    return relative_path(plain(value).rstrip("/"))


def bucket_name(value: Any) -> str:
    """The name of a bucket by Google's rules.

    :raises Invalid: with the rule that is broken.
    """
    name = plain(value)
    if name.startswith("gs://"):
        raise Invalid("must be a bucket's name, without gs://", nearest=name.removeprefix("gs://").split("/")[0])
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise Invalid("a bucket's name has lower-case letters, digits, '-', '_' and '.'", nearest=_tidy(name))
    if not 3 <= len(name) <= 222 or any(len(part) > 63 for part in name.split(".")):
        raise Invalid("a bucket's name has 3 to 63 characters")
    if name.startswith("goog") or "google" in name or _is_address(name):
        raise Invalid("Google does not allow this bucket name")
    return name


def object_prefix(value: Any) -> str:
    """A folder in a bucket, without slashes at its ends.

    :raises Invalid: for what Google forbids or its tools cannot handle.
    """
    prefix = plain(value).strip("/")
    _refuse_odd(prefix)
    if {"", ".", ".."} & set(prefix.split("/")):
        raise Invalid("must not have empty parts, '.' or '..'")
    if _WILDCARDS.search(prefix) or f"{prefix}/".startswith(_FORBIDDEN_OBJECT):
        raise Invalid("has characters that Google's tools take for wildcards (# [ ] * ?), or a reserved start")
    return prefix


def gcs_uri(value: Any) -> str:
    """``gs://bucket/prefix``.

    :raises Invalid: if the scheme, the bucket or the prefix is wrong.
    """
    uri = plain(value)
    if not uri:
        raise Invalid("is empty; give gs://bucket/prefix")
    if not uri.startswith("gs://"):
        rest = re.sub(r"^(\w+:)?/*", "", uri)
        raise Invalid("must start with gs://", nearest=f"gs://{rest}" if rest else None)
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    bucket = bucket_name(bucket)
    if not prefix.strip("/"):
        raise Invalid("needs a prefix after the bucket", nearest=f"gs://{bucket}/runs")
    return f"gs://{bucket}/{object_prefix(prefix)}"


def model_name(value: Any) -> str:
    """A name that becomes part of object names and of an asset's name.

    :raises Invalid: if it has other characters, or too many.
    """
    found = plain(value)
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", found):
        raise Invalid("is not a lower-case letter and up to 39 lower-case letters, digits and hyphens")
    return found


def module_name(script: str) -> str:
    """Name of the module in ``-m package.module``; empty for a path."""
    found = _MODULE.fullmatch(script)
    return found["name"] if found else ""


def script(value: Any) -> str:
    """A script: a path below ``include/train``, a module as ``-m package.module``, or the URI of an object.

    :raises Invalid: if it is none of them.
    """
    found = plain(value)
    if found.startswith("-m "):
        if not module_name(found):
            raise Invalid("is no module; give -m package.module")
        return found
    if not found.startswith("gs://"):
        return relative_path(found)
    if found.endswith("/"):
        raise Invalid("names no file")
    return gcs_uri(found)


def _refuse_odd(path: str) -> None:
    if not path.strip():
        raise Invalid("is empty")
    if path != path.strip():
        raise Invalid("has spaces at an end", nearest=path.strip())
    if _CONTROL.search(path):
        raise Invalid("has control characters")
    if len(path.encode()) > _PATH_LIMIT:
        raise Invalid(f"is longer than {_PATH_LIMIT} bytes")


def _tidy(name: str) -> str | None:
    tidy = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")
    return tidy if _BUCKET.fullmatch(tidy) else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
