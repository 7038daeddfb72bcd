# SPDX-License-Identifier: Apache-2.0
"""Small data for the projects below ``include/train``, as the objects of a bucket."""

from __future__ import annotations

import io

import numpy as np

SENTENCE = "a run that loses its machine keeps what it has learned and ends like one that nothing disturbed"


def text() -> dict[str, bytes]:
    """Sixty lines of a few words each."""
    random = np.random.default_rng(0)
    return {"text.txt": "\n".join(" ".join(random.choice(SENTENCE.split(), 9)) for _ in range(60)).encode()}


def pictures() -> dict[str, bytes]:
    """Forty pictures of 8 x 8 with labels."""
    random, file = np.random.default_rng(0), io.BytesIO()
    np.savez(file, images=random.uniform(0, 1, (40, 8, 8)), labels=random.integers(0, 10, 40))
    return {"digits.npz": file.getvalue()}
