# SPDX-License-Identifier: Apache-2.0
"""A run written in Python: which script, on which TPU, where its results go, and its limits.

Written by scripts/tpu_run_module.py from plugins/airflow_tpu/core/request/form_fields.py; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict


class KnownLater(Protocol):
    """A value that only the running task knows: what another task returned, an argument of a mapped task group."""

    def resolve(self, context: Any) -> Any:
        """Return the value; Airflow calls it."""


Text: TypeAlias = str | KnownLater
"""A text, which may hold Jinja templates."""

Words: TypeAlias = Text | Sequence[str | float | KnownLater]
"""A line as a shell reads it, or one word each."""

Variables: TypeAlias = Text | Mapping[str, str | float | KnownLater]
"""``NAME=value`` lines, or a mapping."""

Whole: TypeAlias = int | Text
Number: TypeAlias = float | Text
Flag: TypeAlias = bool | Text
"""Numbers and flags; a template gives them as text."""


class TPURun(TypedDict, total=False):
    """One run: the ``conf`` of :func:`airflow_tpu.task_groups.tpu_session` and of every operator.

    .. code-block:: python

        run = TPURun(script="train.py", accelerator_type="v2-8", arguments="--lr={{ params.lr }}")
        with tpu_session(conf=run) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments)

    Only the script (or command) must be given; the grant fills in TPU and bucket, as it does in the form, when the run
    begins. The fields are those of the form. Every text may hold Jinja templates, in lists and mappings too. Type
    checkers know the names; a wrong one also fails the import of the DAG. ``{**run, "seed": 2}`` is the same run with
    another seed.

    :param script: Path below ``include/train``, ``-m package.module``, or a ``gs://`` URI. It runs in the folder of its
        project. Allowed: relative path, ``-m`` and a module, or ``gs://`` URI. Must be given.
    :param source: What script, command and requirements are in: a folder below ``include/train``, a ``gs://`` archive,
        or a git repository, ``https://github.com/org/repo@v1.2``. All of it travels; it is the working directory.
        Allowed: relative path, ``gs://`` archive or ``https://`` repository. Left out: empty.
    :param source_conn_id: Airflow connection with the token of a private git repository; its host is the server of the
        project. Allowed: at most 200 characters. Left out: empty.
    :param command: What you would type in the project's folder: ``python -m pkg.train --lr 1e-3``. It stands in place
        of script and arguments; ``$TRC_DATA_URI`` and the other ``TRC_`` names are expanded. Allowed: at most 100 kB.
        Left out: empty.
    :param arguments: Words for the script, quoted as in a shell, also pasted over several lines; ``$TRC_DATA_URI`` and
        the other ``TRC_`` names are expanded. Allowed: at most 100 kB. Left out: empty.
    :param requirements: Requirements file below ``include/train``. Allowed: relative path. Left out: empty.
    :param framework: Picks runtime version and packages for the type. The TPU VM tries it before the script starts.
        Allowed: ``tensorflow``, ``jax`` or ``torch``, with a version. Left out: empty.
    :param revision: Branch, tag or commit of a project in git. Else ``TRC_REVISION``: of code that the script fetches
        by itself. Allowed: at most 200 characters. Left out: empty.
    :param data_uri: ``gs://`` URI for ``TRC_DATA_URI``, in the TPU's region. ``{{ ds }}`` is the run's date, in every
        text. Allowed: ``gs://`` URI. Left out: empty.
    :param seed: ``TRC_SEED``: the seed of everything random in the script. Allowed: 0 to 2147483647. Left out: ``0``.
    :param environment: ``NAME=value``, one a line. No secrets. Allowed: at most 100 kB; no name with ``TRC_``. Left
        out: empty.
    :param secrets: ``NAME = CONNECTION.password`` or ``NAME = variable:KEY``, one a line: Airflow connections and
        Variables whose values the script finds in its environment. Allowed: references, no values. Left out: empty.
    :param accelerator_type: Generation and size of the TPU. Allowed: a type of one VM. Left out: the grant's first row
        that fits.
    :param zone: One that the grant names for this type; others cost money. Allowed: a zone of the type, by the price
        list or the grant. Left out: the grant's first row that fits.
    :param tier: ``spot`` may vanish at any moment; the run then resumes. Allowed: ``spot`` or ``preemptible`` or
        ``on-demand``. Left out: the grant's first row that fits, else ``spot``.
    :param runtime_version: Empty: the default of the type. Allowed: a runtime version of the type's generation. Left
        out: empty.
    :param provisioning: A request in the queue keeps its place until there is capacity, or until the deadline. Allowed:
        ``queued-resource`` or ``node``. Left out: ``queued-resource``.
    :param on_stock_out: ``walk`` stays in the region and asks for as many chips, perhaps of another type. Allowed:
        ``wait`` or ``walk``. Left out: ``wait``.
    :param internal_ips: Workers get no external address, which is billed. Airflow must then reach them in their VPC.
        Allowed: ``true`` or ``false``. Left out: ``false``.
    :param network: VPC network of the TPU VM. Empty: the one named ``default``, which not every project has. Allowed: a
        name, or ``projects/P/global/networks/NAME`` of a shared VPC. Left out: empty.
    :param subnetwork: Subnetwork of that network. Empty: the network's own for the region. Allowed: a name, or
        ``projects/P/regions/R/subnetworks/NAME`` in the region of the zone. Left out: empty.
    :param service_account: Account with which the TPU VM reads and writes buckets. Empty: the default account of
        Compute Engine. Allowed: the e-mail of a service account. Left out: empty.
    :param artifacts_uri: A bucket in the TPU's region: traffic between regions is billed. Allowed:
        ``gs://bucket/prefix``. Left out: the grant's bucket.
    :param outputs: What the run has to write, one a line: ``model.h5``, ``runs/**``, ``gs://bucket/exports/{{ ds }}``.
        Without one of them it fails. Files are looked for in ``TRC_OUTPUT_DIR`` and in the working directory. Allowed:
        at most 50 patterns. Left out: empty.
    :param model: Name under which results compete. The script also gets the champion of this name, to measure both on
        the same examples. Allowed: a lower-case letter, then up to 39 of these, digits and hyphens. Left out: empty.
    :param deadline_hours: Hours from the start of the run; then it is stopped and the TPU deleted. Allowed: more than 0
        to 720 hours. Left out: ``24``.
    :param start_within_hours: Without a TPU by then the run is skipped, and is no failure. 0 waits until the deadline.
        Allowed: 0 to 720 hours. Left out: ``0``.
    :param max_preemptions: How often the TPU may be taken away before the run gives up. Allowed: 0 to 1000 times. Left
        out: ``20``.
    :param stall_minutes: When neither the log nor ``progress.json`` nor any file of the output or the checkpoints has
        changed for so long, the run is stopped and tried again. 0 switches this off. Allowed: 0 to 43200 minutes. Left
        out: ``60``.
    :param unreachable_minutes: How long a TPU VM may not answer that the API calls READY, such as a frozen one, before
        it is deleted and replaced. It is held meanwhile; the log says what that costs. Allowed: 1 to 60 minutes. Left
        out: ``5``.
    :param on_changed_code: When a run would resume from a checkpoint that other code has saved: the model would be a
        mixture. Allowed: ``resume`` or ``refuse``. Left out: ``resume``.
    :param allow_paid_reason: Empty refuses what the grant does not cover. The refusal prints the line that accepts it,
        for you to end with a reason: what, how much, until when. Allowed: at most 2000 characters. Left out: empty.
    """

    script: Text
    source: Text
    source_conn_id: Text
    command: Text
    arguments: Words
    requirements: Text
    framework: Text
    revision: Text
    data_uri: Text
    seed: Whole
    environment: Variables
    secrets: Variables
    accelerator_type: Text
    zone: Text
    tier: Text
    runtime_version: Text
    provisioning: Text
    on_stock_out: Text
    internal_ips: Flag
    network: Text
    subnetwork: Text
    service_account: Text
    artifacts_uri: Text
    outputs: Text
    model: Text
    deadline_hours: Number
    start_within_hours: Number
    max_preemptions: Whole
    stall_minutes: Whole
    unreachable_minutes: Whole
    on_changed_code: Text
    allow_paid_reason: Text


Conf: TypeAlias = TPURun | Mapping[str, Any] | str | KnownLater
"""What operators take as ``conf``: a run, any mapping of its fields, or JSON text."""
