# SPDX-License-Identifier: Apache-2.0
"""Folders of more objects than Cloud Storage lists at once."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

from tests.airflow_tpu.cloud_env import BUCKET, INCLUDE, CloudEnv

OBJECTS = 1001  # one more than a page: https://cloud.google.com/storage/docs/json_api/v1/objects/list
COUNT = (
    "import sys; from gcs.requests import Storage; from gcs.upload import Bucket; "
    "print(len(Bucket(Storage(), sys.argv[1]).entries('f/')))"
)


def fill(url: str) -> None:
    """Put empty objects into the folder, by bare requests: the client would take five seconds."""
    host = urlsplit(url)
    connection = http.client.HTTPConnection(host.hostname or "", host.port)
    for number in range(OBJECTS):
        connection.request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=f/{number}", b"")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.request("GET", f"/storage/v1/b/{BUCKET}/o?prefix=f/")
    assert "nextPageToken" in json.load(connection.getresponse())  # otherwise there would be nothing to follow
    connection.close()


def test_both_sides_list_beyond_one_page(env: CloudEnv) -> None:
    """A folder of 1,001 objects is listed whole by Airflow's side and by the runner on the VM."""
    url = env.cloud.endpoints.storage_api_endpoint
    fill(url)
    assert len(env.storage.listing(f"gs://{BUCKET}/f/")) == OBJECTS
    command = [sys.executable, "-c", COUNT, BUCKET]
    environment = {**os.environ, "STORAGE_EMULATOR_HOST": url}
    found = subprocess.run(command, cwd=INCLUDE / "remote", env=environment, stdout=subprocess.PIPE, check=True)
    assert int(found.stdout) == OBJECTS
