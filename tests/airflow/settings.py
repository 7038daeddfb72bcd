# SPDX-License-Identifier: Apache-2.0
"""Configuration of the Airflow of these tests: what a production Airflow has, and what suits two slow cores."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from localcloud.testing import BackgroundCloud
from tests.airflow.installed import write_metadata
from tests.scripts.whole_chain import ROOT

CONFIG = Path(__file__).parent / "files" / "config"
PRELOAD = (
    "airflow.providers.google.common.hooks.base_google google.cloud.tpu_v2 google.cloud.storage asyncssh "
    "airflow.sdk.execution_time.task_runner airflow_tpu.params airflow_tpu.task_groups airflow_tpu.operators.run "
    "airflow_tpu.lifecycle.run_context airflow_tpu.lifecycle.waits.reachability airflow_tpu.lifecycle.training.follow "
    "airflow_tpu.lifecycle.reap"
)
"""What a task of ours imports; the scheduler and the Celery worker, whose forks the tasks are, do it once."""

PASSWORD = "only for these tests"
"""Of the user ``admin``."""
_PASSWORDS = "passwords.json"
_SITE = "site"

_CORE = {
    "load_examples": "False",
    "executor": "LocalExecutor,CeleryExecutor",
    # A run that is followed in its worker holds a place until its story ends.
    "parallelism": "32",
    "dags_are_paused_at_creation": "False",
    "dagbag_import_timeout": "120",
    "simple_auth_manager_users": "admin:admin",
    "hostname_callable": "airflow_local_settings.host",
    "fernet_key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}
_QUICK = {
    "api_auth": {"jwt_secret": "only for these tests, " * 4},
    # A changed file is parsed at once whatever the interval; parsing all of them every few seconds takes a whole core.
    "dag_processor": {"refresh_interval": "5", "min_file_process_interval": "120"},
    "scheduler": {
        "task_instance_heartbeat_timeout": "60",
        # A scheduler looks for tasks of a dead one when it starts, which may be too soon, and then every so often.
        "orphaned_tasks_check_interval": "20",
        "scheduler_idle_sleep_time": "0.3",
    },
    # How soon one triggerer takes over what another one had.
    "triggerer": {"job_heartbeat_sec": "2", "triggerer_health_check_threshold": "15"},
    # The race that the hold is for (apache/airflow issue 67287) is lost more easily on a machine with this much to do.
    "airflow_tpu": {"grant": "local.yaml", "inline_seconds": "3", "retry_seconds": "5", "event_hold_seconds": "20"},
}


@dataclass(frozen=True)
class Servers:
    """What the processes of Airflow talk to.

    :param database: SQLAlchemy address of the metadata database.
    :param broker: address of Redis.
    :param api: URL of the api-server.
    """

    database: str
    broker: str
    api: str


def furnish(home: Path) -> None:
    """Write who may log in, and make Airflow believe that the package is installed."""
    (home / _PASSWORDS).write_text(json.dumps({"admin": PASSWORD}), encoding="utf-8")
    write_metadata(home / _SITE)


def connections(cloud: BackgroundCloud) -> dict[str, str]:
    """Airflow's connections to a local cloud, by the name of their environment variable."""
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    ssh = {"conn_type": "ssh", "login": "trainer", "extra": {"private_key": key.decode()}}
    return {
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps(cloud.endpoints.airflow_connection()),
        "AIRFLOW_CONN_TPU_SSH_DEFAULT": json.dumps(ssh),
    }


def environment(home: Path, dags: Path, servers: Servers) -> dict[str, str]:
    """Environment of every process; settings of this test process's own Airflow are left out."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    sections = {
        **_QUICK,
        "core": {
            **_CORE,
            "dags_folder": str(dags),
            # Empty: the package brings its plugin.
            "plugins_folder": str(home / "plugins"),
            "execution_api_server_url": f"{servers.api}/execution/",
            "simple_auth_manager_passwords_file": str(home / _PASSWORDS),
        },
        "database": {"sql_alchemy_conn": servers.database},
        "celery": {
            "broker_url": servers.broker,
            "result_backend": servers.database.replace("postgresql+psycopg2", "db+postgresql"),
        },
        "api": {
            "host": "127.0.0.1",
            "port": servers.api.rpartition(":")[2],
            "workers": "1",
            "base_url": servers.api,
            "secret_key": "only for these tests",
        },
    }
    options = {
        f"AIRFLOW__{section}__{key}".upper(): value for section, keys in sections.items() for key, value in keys.items()
    }
    return {
        **own,
        **options,
        "AIRFLOW_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "plugins", CONFIG, home / _SITE))),
        "SPT_NOENV": "1",  # setproctitle would write over the environment, by which the processes are found
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
