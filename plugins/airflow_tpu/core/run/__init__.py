# SPDX-License-Identifier: Apache-2.0
"""One run: its record with the lease, its job, its messages, its result."""
