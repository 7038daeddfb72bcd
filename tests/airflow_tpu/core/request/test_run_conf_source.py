# SPDX-License-Identifier: Apache-2.0
"""What fits together of a project, its revision and its connection."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.cloud_env import FORM

REPOSITORY = {**FORM, "source": "https://github.com/org/repo", "command": "python train.py"}


def test_a_revision_is_the_one_of_a_project_in_git(catalogue: Catalogue) -> None:
    """It names what the address leaves open, and must not contradict it; an archive takes no connection."""
    found = RunConf.parse({**REPOSITORY, "revision": "v1"}, catalogue)
    assert str(found.address) == "https://github.com/org/repo@v1"
    for wrong, words in (
        ({"source": "https://github.com/org/repo@v2", "revision": "v1"}, "revision = 'v1': differs from 'v2'"),
        ({"revision": "a..b"}, r"revision = 'a\.\.b': is no name"),
        ({"source": "gs://bucket/x.zip", "source_conn_id": "git"}, "source_conn_id = 'git': is for a project in git"),
    ):
        with pytest.raises(ConfigError, match=words):
            RunConf.parse({**REPOSITORY, **wrong}, catalogue)
