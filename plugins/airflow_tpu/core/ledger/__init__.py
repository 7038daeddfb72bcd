# SPDX-License-Identifier: Apache-2.0
"""The ledger: events, and what they add up to."""
