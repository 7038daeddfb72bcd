# SPDX-License-Identifier: Apache-2.0
"""Arguments and environment of the script: words and numbers, and what looks like a secret and is none."""

from __future__ import annotations

from airflow_tpu.core.request.environment import arguments, environment


def test_special_tokens_of_a_language_model_are_not_secrets() -> None:
    """Short values of TOKEN variables are settings, and an empty password is none."""
    found = environment("PAD_TOKEN=[PAD]\nMAX_TOKEN=512\nDB_PASSWORD=")
    assert found == {"PAD_TOKEN": "[PAD]", "MAX_TOKEN": "512", "DB_PASSWORD": ""}


def test_paths_are_not_secrets() -> None:
    """A variable that holds the path of a credential is no secret."""
    found = environment("GOOGLE_APPLICATION_CREDENTIALS=/etc/key.json\nAPI_KEY=projects/p/secrets/s")
    assert found == {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json", "API_KEY": "projects/p/secrets/s"}


def test_a_dag_gives_words_and_variables_one_by_one() -> None:
    """What a DAG computes is a list or a mapping, with numbers in it; nothing of it is split."""
    assert arguments(["--lr", 0.01, "--steps", 600, "a b"]) == ("--lr", "0.01", "--steps", "600", "a b")
    assert environment({"STEPS": 600, "NAME": "a b"}) == {"STEPS": "600", "NAME": "a b"}


def test_lines_of_a_shell_are_read_as_one_reads_them() -> None:
    """Pasted exports, comments and quotes of a .env file; a quote inside of a value stays."""
    text = "# of the paper\nexport A=1\n  B='x y'\nC=\"--a --b\" \nD='a' 'b'\nE={\"k\": 1}\nF=it's"
    assert environment(text) == {"A": "1", "B": "x y", "C": "--a --b", "D": "'a' 'b'", "E": '{"k": 1}', "F": "it's"}
