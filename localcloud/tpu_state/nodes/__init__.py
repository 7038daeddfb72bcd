# SPDX-License-Identifier: Apache-2.0
"""Nodes: records, states, boot, loss, deletion."""
