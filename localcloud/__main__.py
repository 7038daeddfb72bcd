"""``python -m localcloud``."""

import sys

from localcloud.cli.main import main

sys.exit(main())
