# SPDX-License-Identifier: Apache-2.0
"""The command line of digits.py."""

from __future__ import annotations

from digits_parts.arguments import config_digest, parse_arguments, shaping
from trc.contract import Contract


def test_only_what_shapes_the_result_is_part_of_the_digest() -> None:
    """Saving more often or on more replicas resumes the same run; other steps, seeds or data do not."""
    contract = Contract.from_environment({})

    def digest(*arguments: str, data: str = "d") -> str:
        return config_digest(shaping(parse_arguments(list(arguments), contract)), data)

    base = digest()
    assert digest("--save-every", "7", "--save-secs", "9", "--cpu-replicas", "2") == base
    others = ("--steps", "--batch-size", "--seed", "--eval-every")
    assert base not in {digest(name, "3") for name in others}
    assert base not in {digest("--dropout", "0.1"), digest("--learning-rate", "0.1"), digest(data="e")}


def test_the_seed_of_the_pipeline_is_the_default() -> None:
    """TRC_SEED counts unless the command line says otherwise."""
    contract = Contract.from_environment({"TRC_SEED": "5"})
    assert parse_arguments([], contract).seed == 5
    assert parse_arguments(["--seed", "6"], contract).seed == 6
