# SPDX-License-Identifier: Apache-2.0
"""Write docs/configuration.md from what the provider tells Airflow: each option and each field of both connections.

Usage: ``configuration_page.py > docs/configuration.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "plugins"))

from airflow_tpu.connection_type import EXAMPLES, SSH_FIELDS
from airflow_tpu.get_provider_info import get_provider_info
from airflow_tpu.settings import SECTION

HEAD = """# Configuration

<!-- Written by scripts/configuration_page.py from plugins/airflow_tpu/get_provider_info.py and connection_type.py; do not edit. -->

Everything that is set outside of a DAG: one section of Airflow's configuration and two connections. None of it is needed
to look at the local cloud; for Google a grant and the two connections are.
"""

OPTIONS = """## Options of `[{section}]`

In `airflow.cfg`, or as the environment variable `AIRFLOW__{upper}__` with the option in capitals, such as
`AIRFLOW__{upper}__GRANT`, for every part of Airflow: scheduler, DAG processor, workers, triggerer and api-server.
`airflow config list --section {section}` shows what is in force. An option that is empty has its default.

| option | type | default | example | meaning |
|---|---|---|---|---|"""

GRANT = """## Where the grant is

| `grant` is | such as | a longer grant | the form shows it |
|---|---|---|---|
| a file in `include/grants` | `grant.yaml` | replace the file wherever Airflow runs | yes |
| an Airflow Variable | `variable:trc_grant` | `airflow variables set trc_grant "$(cat grant.yaml)"` | no |
| an object in a bucket | `gs://my-bucket/grants/grant.yaml` | `gcloud storage cp grant.yaml gs://my-bucket/grants/grant.yaml` | if `include/grants` has a file of that name |

All three hold the same YAML ([grant.md](grant.md)), and each task reads it anew. Workers and triggerer need it both: a file
has to be on every machine, a Variable or an object need not. `airflow-tpu grant show` prints the one that is found.
"""

CONNECTIONS = """## The connections

Both are read where they are used, from wherever this Airflow keeps connections: its database, the environment
(`AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT`), or a secrets backend, where they belong in production. `airflow-tpu init DIR` writes
both as a file for `airflow connections import`. [google.md](google.md) says which rights the account needs.
"""

GOOGLE = """### google_cloud_default

Type *{name}* (`{kind}`); one of type *Google Cloud* (`google_cloud_platform`) with the same keys in its extra serves as
well. Operators take another one by `gcp_conn_id`. Without a key Airflow's own account is used: that of the machine, or of
`gcloud auth application-default login`.

| key of the extra | in the form | type | default | example | meaning |
|---|---|---|---|---|---|"""

SSH = """### tpu_ssh_default

Type *SSH* (`ssh`) of `apache-airflow-providers-ssh`. Operators take another one by `ssh_conn_id`. Host, port and password are
not read: each TPU has its own address, and host keys are pinned for each TPU.

| field | type | default | example | meaning |
|---|---|---|---|---|"""


def page() -> str:
    """Return the whole page."""
    info = get_provider_info()
    (google,) = info["connection-types"]
    return "\n".join(
        [
            HEAD,
            OPTIONS.format(section=SECTION, upper=SECTION.upper()),
            *_options(info["config"][SECTION]["options"]),
            "",
            GRANT,
            CONNECTIONS,
            GOOGLE.format(name=google["hook-name"], kind=google["connection-type"]),
            *_fields(google["conn-fields"]),
            "",
            SSH,
            *(_row(name, "string", "none", _code(example), text) for name, (example, text) in SSH_FIELDS.items()),
            "",
        ]
    )


def _options(options: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, option in options.items():
        default = _code(option["default"]) or "empty"
        yield _row(name, option["type"], default, _code(option["example"]), option["description"])


def _fields(fields: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, field in fields.items():
        schema = field["schema"]
        kind = "secret" if schema.get("format") == "password" else schema["type"][0]
        default = _code(str(schema["default"]).lower()) if "default" in schema else "empty"
        yield _row(name, field["label"], kind, default, _code(EXAMPLES[name]), field["description"])


def _row(name: str, *cells: str) -> str:
    return f"| `{name}` | {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(page(), end="")
