"""Where the files are that an Airflow process reads or ships, and never imports.

Importing this module reads nothing and imports no Airflow: every DAG file does it, every few seconds.
"""

from __future__ import annotations

from pathlib import Path

SECTION = "airflow_tpu"
_PACKAGE = Path(__file__).resolve().parent


def include_dir() -> Path:
    """Return the directory that holds ``remote``, ``train``, ``grants`` and ``catalogue``.

    The first of: option ``include_dir`` of section ``airflow_tpu`` in airflow.cfg; ``include`` beside the
    ``plugins`` folder this package lies in; the copy inside the installed wheel.

    :raises FileNotFoundError: if none of them is there; the message lists them.
    """
    candidates = [path for path in (_configured(), _PACKAGE.parent.parent / "include", _PACKAGE / "_include") if path]
    for path in candidates:
        # A directory of that name beside some other "plugins" need not be ours.
        if (path / "remote" / "runner.py").is_file():
            return path
    raise FileNotFoundError(
        f"no include directory with remote/runner.py: looked at {', '.join(map(str, candidates))}; "
        f"set [{SECTION}] include_dir"
    )


def remote_dir() -> Path:
    """Return the directory of what runs on the TPU VM."""
    return include_dir() / "remote"


def _configured() -> Path | None:
    from airflow.sdk.configuration import conf

    value = conf.get(SECTION, "include_dir", fallback="")
    return Path(value).expanduser() if value else None
