# SPDX-License-Identifier: Apache-2.0
"""Queued resources: records, states, provisioning, suspension."""
