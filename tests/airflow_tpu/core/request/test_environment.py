"""Environment variables of the script that look like secrets and are none."""

from __future__ import annotations

from airflow_tpu.core.request.environment import environment


def test_special_tokens_of_a_language_model_are_not_secrets() -> None:
    """Short values of TOKEN variables are settings, and an empty password is none."""
    found = environment("PAD_TOKEN=[PAD]\nMAX_TOKEN=512\nDB_PASSWORD=")
    assert found == {"PAD_TOKEN": "[PAD]", "MAX_TOKEN": "512", "DB_PASSWORD": ""}


def test_paths_are_not_secrets() -> None:
    """A variable that holds the path of a credential is no secret."""
    found = environment("GOOGLE_APPLICATION_CREDENTIALS=/etc/key.json\nAPI_KEY=projects/p/secrets/s")
    assert found == {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json", "API_KEY": "projects/p/secrets/s"}
