# SPDX-License-Identifier: Apache-2.0
"""``init``: a project beside an installed package, with everything that a person edits."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from airflow_tpu.cli.project_files import EXAMPLE_PROJECT, ProjectFiles
from airflow_tpu.cli.verbs import DONE, REFUSED, Verb, complain, option, say

_MOST_NAMES = 5

NEXT = """Next:
  1. . {folder}/airflow.env
       names these folders to Airflow; needed in each shell that starts a part of it
  2. airflow-tpu grant import LETTER.txt --project-id {project} --project-number N --start DATE --bucket BUCKET
       writes include/grants/grant.yaml from the letter, beside the example to fill in by hand
  3. airflow connections import {folder}/connections/connections.json
       after airflow db migrate; {account}
  4. airflow dags unpause tpu_train && airflow dags trigger tpu_train --conf '{{"script": "hello.py"}}'
Leave tpu_reaper unpaused: it deletes the TPUs that outlive their run."""


def init(args: argparse.Namespace) -> int:
    """Write the project, or nothing if a file of it is there already; say what to do next."""
    folder = Path(args.directory).expanduser().resolve()
    files = ProjectFiles(folder, args.project_id)
    if found := files.existing():
        shown = ", ".join(found[:_MOST_NAMES]) + (", ..." if len(found) > _MOST_NAMES else "")
        complain(f"Nothing was written: {folder} has {len(found)} of the files already ({shown}).")
        complain("Name another directory, or move them away.")
        return REFUSED
    say(f"Written: {files.write()} files in {folder}")
    missing = "put the project into it first" if args.project_id == EXAMPLE_PROJECT else ""
    account = missing or "credentials are those of gcloud auth application-default login, unless you name others"
    say(NEXT.format(folder=shlex.quote(str(folder)), project=args.project_id, account=account))
    return DONE


VERB = Verb(
    "init",
    "write a project for an installed package: DAG files, training scripts, an example grant, both connections",
    (
        option("directory", metavar="DIR", help="made if it is not there; no file in it is overwritten"),
        option(
            "--project-id", default=EXAMPLE_PROJECT, metavar="ID", help="of the grant, for the connection to Google"
        ),
    ),
    init,
)
