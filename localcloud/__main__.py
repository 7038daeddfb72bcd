# SPDX-License-Identifier: Apache-2.0
"""``python -m localcloud``."""

import sys

from localcloud.cli.main import main

sys.exit(main())
