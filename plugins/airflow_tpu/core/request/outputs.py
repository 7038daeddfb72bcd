# SPDX-License-Identifier: Apache-2.0
"""Outputs that a person declares: the run has failed if one of them is missing when its script has ended well."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from airflow_tpu.core.request.fields import Invalid, plain
from airflow_tpu.core.request.paths import bucket_name

_MOST = 50
_LONGEST = 500  # characters of one pattern
_OUTPUT_DIR = re.compile(r"\A(?:\$TRC_OUTPUT_DIR|\$\{TRC_OUTPUT_DIR\}|\.)/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def outputs(value: Any) -> tuple[str, ...]:
    """Patterns, one a line, separated by commas, or as a list.

    :raises Invalid: one is absolute, leaves its folder, or there are too many.
    """
    found = tuple(dict.fromkeys(_pattern(one) for one in _given(value)))
    if len(found) > _MOST:
        raise Invalid(f"has more than {_MOST} patterns; '**' stands for everything below a folder")
    return found


def _given(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    text = plain(value).strip()
    if text.startswith("["):
        try:
            return outputs_of_json(json.loads(text))
        except json.JSONDecodeError:
            raise Invalid("begins like a JSON list and is none") from None
    return [one.strip() for one in re.split(r"[,\n]", text) if one.strip()]


def outputs_of_json(found: object) -> list[str]:
    """Return the texts of a JSON list.

    :raises Invalid: it has something else.
    """
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Invalid("must be a list of texts")
    return found


def _pattern(given: str) -> str:
    if len(given) > _LONGEST:
        raise Invalid(f"has a pattern of more than {_LONGEST} characters")
    if _CONTROL.search(given):
        raise Invalid("has control characters")
    if given.startswith("gs://"):
        bucket, _, name = given.removeprefix("gs://").partition("/")
        if not name:
            raise Invalid(f"{given} names a bucket and no folder in it")
        return f"gs://{bucket_name(bucket)}/{name}"
    pattern = _OUTPUT_DIR.sub("", given, count=1)
    if pattern.startswith(("/", "~", "$")) or ".." in PurePosixPath(pattern).parts:
        raise Invalid(f"{given} must be a path in the output or working directory, or a gs:// URI")
    if not pattern.strip("/. "):
        raise Invalid(f"{given!r} names nothing")
    return pattern
