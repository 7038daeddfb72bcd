# SPDX-License-Identifier: Apache-2.0
"""Where the shipped files are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_tpu import settings
from airflow_tpu.errors import ConfigError

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def ask(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"from airflow_tpu import settings\n{code}"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(PLUGINS), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("text", ["soon", "nan", "-1", "inf", "1e9"])
def test_what_is_no_length_of_time_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong number of seconds names its option, the value and the default."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS", text)
    with pytest.raises(ConfigError, match=rf"\[airflow_tpu\] retry_seconds = '{text}'.*nearest: 15"):
        settings.retry_seconds()


def test_importing_the_settings_costs_nothing() -> None:
    """No Airflow is imported until a path is asked for."""
    assert ask("import sys; print(sorted(name for name in sys.modules if name.split('.')[0] == 'airflow'))") == "[]"


def test_the_option_comes_before_the_directory_beside_plugins(tmp_path: Path) -> None:
    """The configured directory is used if it is one of ours; if not, or if there is none, the project's own."""
    mine = tmp_path / "mine"
    (mine / "remote").mkdir(parents=True)
    code = f"""
import os, pathlib
found = [settings.include_dir()]
os.environ["AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR"] = {str(mine)!r}
found.append(settings.include_dir())
pathlib.Path({str(mine)!r}, "remote", "runner.py").touch()
found.append(settings.include_dir())
print(*found)
"""
    include = str(PLUGINS.parent / "include")
    assert ask(code, AIRFLOW_HOME=str(tmp_path)).split() == [include, include, str(mine)]
