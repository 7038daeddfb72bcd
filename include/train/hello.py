# SPDX-License-Identifier: Apache-2.0
"""The smallest script that fulfils the contract: write what is worth keeping into TRC_OUTPUT_DIR and end with 0."""

import os
import pathlib

output = pathlib.Path(os.environ.get("TRC_OUTPUT_DIR", "output"))
output.mkdir(parents=True, exist_ok=True)
worker = os.environ.get("TRC_WORKER_ID", "0")
print(f"hello from worker {worker}, attempt {os.environ.get('TRC_ATTEMPT', '1')}", flush=True)
(output / f"hello-{worker}.txt").write_text("hello\n")
