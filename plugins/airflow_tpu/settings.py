# SPDX-License-Identifier: Apache-2.0
"""Options of section ``airflow_tpu``, and where the files are that Airflow reads or ships, and never imports.

Importing this module reads nothing and imports no Airflow: every DAG file does it, every few seconds.
"""

from __future__ import annotations

from pathlib import Path

SECTION = "airflow_tpu"
DEFAULT_GRANT = "grant.yaml"
DEFAULT_INLINE_SECONDS = 20.0
DEFAULT_EVENT_HOLD_SECONDS = 10.0
DEFAULT_RETRY_SECONDS = 15.0
_MOST_SECONDS = 86400.0
_PACKAGE = Path(__file__).resolve().parent
_CANDIDATES = (_PACKAGE.parent.parent / "include", _PACKAGE / "_include")


def include_dir() -> Path:
    """Return the directory of the project: ``train`` with its scripts, ``grants``.

    The first of: option ``include_dir`` of section ``airflow_tpu`` in airflow.cfg; ``include`` beside the
    ``plugins`` folder this package lies in; the copy inside the installed wheel.

    :raises FileNotFoundError: if none of them is there; the message lists them.
    """
    configured = _configured()
    if configured and ((configured / "train").is_dir() or _has_runner(configured)):
        return configured
    return package_include_dir()


def package_include_dir() -> Path:
    """Return the directory that came with this version of the package; of a wheel, nothing is ever written there.

    :raises FileNotFoundError: if there is none; the message lists the places, and the option that names another.
    """
    for path in _CANDIDATES:
        # A directory of that name beside some other "plugins" need not be ours.
        if _has_runner(path):
            return path
    looked_at = [path for path in (_configured(), *_CANDIDATES) if path]
    raise FileNotFoundError(
        f"no include directory with train or remote/runner.py: looked at {', '.join(map(str, looked_at))}; "
        f"set [{SECTION}] include_dir"
    )


def include_is_installed() -> bool:
    """Whether the project's directory is the copy inside the installed package, which belongs to nobody's project."""
    return include_dir() == _PACKAGE / "_include"


def remote_dir() -> Path:
    """Return the directory of what runs on the TPU VM."""
    return _of_this_version("remote")


def tables_dir() -> Path:
    """Return the directory of the catalogue's tables."""
    return _of_this_version("catalogue")


def dags_dir() -> Path:
    """Return the directory of the DAG files that ``airflow-tpu init`` copies."""
    include = package_include_dir()
    return include / "dags" if include == _PACKAGE / "_include" else include.parent / "dags"


def grant_name() -> str:
    """Return the place of the grant: option ``grant``.

    A file below ``include/grants``, ``variable:NAME`` for an Airflow Variable, or the ``gs://`` URI of an object.
    """
    return _option("grant") or DEFAULT_GRANT


def catalogue_dir() -> Path | None:
    """Return the folder with tables that replace ours: option ``catalogue``, None if there is none."""
    value = _option("catalogue")
    return Path(value).expanduser() if value else None


def insecure_hosts() -> frozenset[str]:
    """Return the hosts that may be reached without TLS or credentials, beside loopback and private addresses.

    Option ``insecure_hosts``, separated by commas: the name of a compose service, say.
    """
    return frozenset(host.strip() for host in _option("insecure_hosts").split(",") if host.strip())


def inline_seconds() -> float:
    """Return how long a deferrable task waits in its worker before it defers: option ``inline_seconds``, 20 by default.

    A deferral takes some seconds itself, and a TPU that comes at once need not wait for it.
    """
    return _seconds("inline_seconds", DEFAULT_INLINE_SECONDS)


def event_hold_seconds() -> float:
    """Return how long after a deferral no trigger of ours fires: option ``event_hold_seconds``, 10 by default.

    An earlier event can meet the executor's report of the deferral itself, and the try is failed
    (https://github.com/apache/airflow/issues/67287).
    """
    return _seconds("event_hold_seconds", DEFAULT_EVENT_HOLD_SECONDS)


def retry_seconds() -> float:
    """Return how long a task waits before a retry that may soon help: option ``retry_seconds``, 15 by default.

    Where only waiting helps (no capacity, quota in use, rate limits) it waits twenty times as long, after a loss, which
    no waiting undoes, a second.
    """
    return _seconds("retry_seconds", DEFAULT_RETRY_SECONDS)


def airflow_name() -> str:
    """Return what people call this Airflow: option ``airflow_name``, empty if it has no name."""
    return _option("airflow_name").strip()


def failure_notifiers() -> list[str]:
    """Return the recipients of failures: option ``failure_notifiers``, ``connection:target`` separated by commas."""
    return [entry.strip() for entry in _option("failure_notifiers").split(",") if entry.strip()]


def script_secrets() -> list[str]:
    """Return what scripts may get: option ``script_secrets``, patterns of references separated by commas.

    ``wandb_*.password, variable:hf_*``; empty allows every Variable, and every connection that is not Airflow's own.
    """
    return [entry.strip() for entry in _option("script_secrets").split(",") if entry.strip()]


def airflow_address() -> str:
    """Return the address of this Airflow, ``[api] base_url``, empty if it has none."""
    from airflow.sdk.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "")


def _configured() -> Path | None:
    value = _option("include_dir")
    return Path(value).expanduser() if value else None


def _has_runner(folder: Path) -> bool:
    return (folder / "remote" / "runner.py").is_file()


def _of_this_version(name: str) -> Path:
    """Return a folder of the project if it is there, else the package's own, which follows every upgrade."""
    mine = include_dir() / name
    return mine if mine.is_dir() else package_include_dir() / name


def _seconds(name: str, default: float) -> float:
    """Return an option that is a length of time.

    :raises ConfigError: it is no number of seconds, 0 or more and finite.
    """
    text = _option(name).strip()
    try:
        value = float(text or default)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_SECONDS:
        from airflow_tpu.errors import ConfigError, Fault

        allowed = (f"0 to {_MOST_SECONDS:g}",)
        raise ConfigError([Fault(f"[{SECTION}] {name}", text, "is no number of seconds", allowed, f"{default:g}")])
    return value


def _option(name: str) -> str:
    from airflow.sdk.configuration import conf

    return str(conf.get(SECTION, name, fallback="") or "")
