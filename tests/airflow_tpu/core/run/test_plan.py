# SPDX-License-Identifier: Apache-2.0
"""From the form and the bundle to the job that the worker starts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.run.plan import Attempt, plan_job
from airflow_tpu.core.source.bundle import Bundle
from tests.airflow_tpu.cloud_env import FORM

BUNDLE = Bundle(("python3", "./train.py"), b"", working_dir="repo")
ATTEMPT = Attempt("run", 1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


def planned(catalogue: Catalogue, bundle: Bundle, **form: str) -> JobSpec:
    """The job of a form."""
    conf = RunConf.parse({**FORM, **form}, catalogue)
    return plan_job(conf, catalogue.types[conf.accelerator_type], bundle, ATTEMPT)


def test_the_command_is_the_bundles_with_the_arguments_of_the_form(catalogue: Catalogue) -> None:
    """It starts in the project's folder, and installs nothing that was not asked for."""
    job = planned(catalogue, BUNDLE, arguments="--lr 1e-3 \\\n --bs 8")
    assert job.argv == ("python3", "./train.py", "--lr", "1e-3", "--bs", "8")
    assert (job.working_dir, job.requirements, job.setup) == ("repo", "", ())


def test_variables_that_the_machine_knows_are_left_to_it(catalogue: Catalogue) -> None:
    """Run, attempt, deadline and unbuffered output are set on the TPU VM, from the job's own fields."""
    job = planned(catalogue, BUNDLE)
    assert (job.run_name, job.attempt, job.deadline) == ("run", 1, ATTEMPT.deadline.timestamp())
    assert {"TRC_SEED", "TRC_ARTIFACTS_URI", "TRC_WORKER_COUNT"} <= job.environment.keys()
    assert not {"TRC_RUN_ID", "TRC_ATTEMPT", "TRC_DEADLINE", "PYTHONUNBUFFERED"} & job.environment.keys()


def test_every_attempt_gets_the_dates_of_its_run(catalogue: Catalogue) -> None:
    """The variables are there in a run without dates too, empty."""
    assert planned(catalogue, BUNDLE).environment["TRC_LOGICAL_DATE"] == ""


@pytest.mark.parametrize("file", ["reqs/vm.txt", "my $(reboot) list.txt"])
def test_requirements_are_named_by_their_place_in_the_bundle(catalogue: Catalogue, file: str) -> None:
    """The runner installs them, whatever the file is called and wherever the project's folder is."""
    job = planned(catalogue, replace(BUNDLE, working_dir="a/b", requirements=file))
    assert (job.requirements, job.working_dir, job.setup) == (file, "a/b", ())
