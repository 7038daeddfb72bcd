# SPDX-License-Identifier: Apache-2.0
"""What the form may say of a secret: where it is, and never what it is."""

from __future__ import annotations

import pytest

from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.references.secrets import SecretReference, secrets


def test_references() -> None:
    """Fields of connections, keys of their extra, Variables; as lines and as a mapping."""
    text = "WANDB_API_KEY = wandb_default.password\r\n\nHF_TOKEN=variable:hf_token\nA = my.conn-1.extra.api.key\n"
    found = secrets(text)
    assert found == {
        "WANDB_API_KEY": SecretReference("wandb_default", "password"),
        "HF_TOKEN": SecretReference("hf_token"),
        "A": SecretReference("my.conn-1", "extra.api.key"),
    }
    assert secrets({name: str(reference) for name, reference in found.items()}) == found
    assert secrets("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345",
        "KEY=variable:hf_abcdefghijklmnopqrstuvwxyz012345",
        "PASSWORD=tr0ub4dor&3.password",
        "TRC_X=a.password",
        "A=variable:",
        "A=a.pasword",
        "no equals sign",
        "A=a.password\nA=b.password",
    ],
)
def test_anything_else_is_refused_without_being_repeated(text: str) -> None:
    """A secret that is typed where its name belongs is in no message."""
    with pytest.raises(Invalid) as error:
        secrets(text)
    value = text.partition("=")[2].split("\n")[0].removeprefix("variable:")
    assert len(value) < 12 or value not in str(error.value)


def test_the_field_that_is_near_is_named() -> None:
    """A slip of the pen in the field of a connection."""
    with pytest.raises(Invalid) as error:
        secrets("A = wandb.pasword")
    assert error.value.nearest == "password"
