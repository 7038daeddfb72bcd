# SPDX-License-Identifier: Apache-2.0
"""Seven projects of the shapes that people bring: a source, the command of its README, an environment each."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER, ARCHIVE, GIT = "folder", "archive", "git"
_WHEEL = "wheels/flagged-1.0-py3-none-any.whl"
_EPOCH = (1980, 1, 1, 0, 0, 0)

# As much of absl as the package uses: flags that a module defines and that the program parses.
_FLAGGED = """
import argparse
FLAGS = argparse.Namespace()
_parser = argparse.ArgumentParser()
def DEFINE_string(name, default, help):
    _parser.add_argument(f"--{name}", default=default, help=help)
def run(main):
    _parser.parse_args(namespace=FLAGS)
    raise SystemExit(main([]))
"""


@dataclass(frozen=True)
class Shape:
    """One project.

    :param files: its tree.
    :param source: kind of its source.
    :param form: fields of the form beside the source.
    :param stored: objects of the attempt, with their content.
    """

    files: Mapping[str, str]
    source: str
    form: Mapping[str, str]
    stored: Mapping[str, str] = field(default_factory=dict)


PACKAGE = Shape(
    {
        "net/__init__.py": "",
        "net/layers/__init__.py": "from .dense import width\n",
        "net/layers/dense.py": "def width(text):\n    return len(text)\n",
        "net/train.py": """
            import os, pathlib
            import flagged
            from .layers import width
            flagged.DEFINE_string("data_dir", None, "where the data are")
            flagged.DEFINE_string("model", "small", "size")
            def main(argv):
                found = f"{flagged.FLAGS.data_dir} {flagged.FLAGS.model} {width('abc')}"
                pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "found.txt").write_text(found)
            if __name__ == "__main__":
                flagged.run(main)
        """,
        "requirements.txt": "-r requirements/base.txt\n",
        "requirements/base.txt": f"./{_WHEEL}\n",
    },
    GIT,
    {
        "command": "$ python -m net.train \\\n    --data_dir=$TRC_DATA_URI \\\n    --model large",
        "requirements": "requirements.txt",
        "data_uri": "gs://trc-local/images",
    },
    {"output/found.txt": "gs://trc-local/images large 3"},
)
CONFIGS = Shape(
    {
        "vision/train.py": """
            import argparse, pathlib, runpy
            parser = argparse.ArgumentParser()
            parser.add_argument("--config")
            parser.add_argument("--workdir")
            found = parser.parse_args()
            path, _, variant = found.config.partition(":")
            text = runpy.run_path(path)["get_config"](variant)
            folder = pathlib.Path(found.workdir)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.txt").write_text(text)
        """,
        "vision/configs/mlp.py": "def get_config(variant):\n    return f'mlp {variant}'\n",
    },
    ARCHIVE,
    {
        "command": "python3 -m vision.train --config vision/configs/mlp.py:b16 --workdir workdirs/`date '+%Y'`",
        "outputs": "workdirs/**",
    },
    {},
)
FLAT = Shape(
    {
        "train.py": """
            import pathlib, sys
            from model import count
            exec(open(sys.argv[1]).read())
            pathlib.Path("out").mkdir()
            pathlib.Path("out", "ckpt.pt").write_text(f"{count(open('data/play/input.txt').read())} {rate}")
        """,
        "model.py": "def count(text):\n    return len(set(text))\n",
        "config/play.py": "rate = 0.5\n",
        "data/play/input.txt": "to be or not",
    },
    FOLDER,
    {"command": "python train.py config/play.py"},
    {"working-dir/out/ckpt.pt": "7 0.5"},
)
TEE = Shape(
    {
        "examples/pretrain.sh": """
            #! /bin/bash
            export FLAGS='--one --two'
            python -m llm.train \\
                --dim='-1,64,1' \\
            |& tee $TRC_OUTPUT_DIR/output.txt
        """,
        "llm/__init__.py": "",
        "llm/train.py": """
            import os, sys
            print(sys.argv[1:], os.environ["FLAGS"], flush=True)
            sys.exit("diverged")
        """,
    },
    GIT,
    {"command": "bash examples/pretrain.sh"},
    {"output/output.txt": "['--dim=-1,64,1'] --one --two\ndiverged\n"},
)
UV = Shape(
    {
        "pyproject.toml": f"""
            [project]
            name = "app"
            version = "0.1"
            requires-python = ">=3.8"
            dependencies = ["flagged"]
            [tool.uv.sources]
            flagged = {{ path = "{_WHEEL}" }}
        """,
        "src/app/__init__.py": "",
        "src/app/main.py": """
            import flagged, json, os, pathlib
            pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "out.json").write_text(json.dumps(flagged.__name__))
        """,
        "run.sh": "PYTHONPATH=src exec python -m app.main\n",
    },
    FOLDER,
    {"command": "bash run.sh |& tee log.txt", "requirements": "uv.lock"},
    {"output/out.json": '"flagged"'},
)
NOTEBOOK = Shape(
    {
        "train.ipynb": """
            {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "colab", "language": "python"}},
             "cells": [
              {"cell_type": "code", "id": "a", "metadata": {"tags": ["parameters"]}, "execution_count": null,
               "outputs": [], "source": "lr = 1.0"},
              {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": null, "outputs": [],
               "source": "from helper import half\\nprint('rate', half(lr))"}]}
        """,
        "helper.py": "def half(value):\n    return value / 2\n",
    },
    ARCHIVE,
    {"script": "train.ipynb", "arguments": "-p lr 0.5"},
    {},
)
CLONES = Shape(
    {
        "train.sh": """
            git clone -q --depth 1 --branch "$TRC_REVISION" "$REPOSITORY" code
            cd code
            python3 train.py > ../model.txt
        """
    },
    FOLDER,
    {"command": "bash train.sh", "revision": "v1.0"},
    {"working-dir/model.txt": "tagged\n"},
)

SHAPES = {
    "package": PACKAGE,
    "configs": CONFIGS,
    "flat": FLAT,
    "tee": TEE,
    "uv": UV,
    "notebook": NOTEBOOK,
    "clones": CLONES,
}


def write(shape: Shape, folder: Path) -> None:
    """Write the tree of a project, with its wheel and, if it is one for uv, its lock file."""
    for name, content in shape.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(content.removeprefix("\n")))
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / _WHEEL, "w") as wheel:
        for name, content in _wheel_files().items():
            wheel.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    if shape is UV:
        _lock(folder)


def archive(folder: Path) -> bytes:
    """Pack a tree as a download of a repository is: all of it in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname="repo-1.0")
    return buffer.getvalue()


def _wheel_files() -> dict[str, str]:
    info = "flagged-1.0.dist-info"
    return {
        "flagged.py": _FLAGGED,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: flagged\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }


def _lock(folder: Path) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else str(shutil.which("uv"))
    environment = {**os.environ, "UV_CACHE_DIR": str(folder.parent / "uv-cache"), "UV_NO_CONFIG": "1"}
    subprocess.run([uv, "lock", "-q", "--offline"], cwd=folder, env=environment, check=True)
