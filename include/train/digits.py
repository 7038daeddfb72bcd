# SPDX-License-Identifier: Apache-2.0
"""Train a small convolutional network on scikit-learn's handwritten digits.

Runs on a TPU VM, a GPU or a CPU with the same model code, inside the pipeline or by hand::

    python include/train/digits.py --steps 800

It resumes from its newest whole checkpoint by itself; on a CPU the result is the same to the last bit however often
it was interrupted. Its code is in digits_parts/; what it writes and how it ends: README.md beside this file.
"""

import sys

from digits_parts.main import main

if __name__ == "__main__":
    sys.exit(main())
