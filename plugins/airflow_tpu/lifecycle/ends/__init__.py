# SPDX-License-Identifier: Apache-2.0
"""How an incarnation ends: its delete, the reason, its record in the ledger."""
