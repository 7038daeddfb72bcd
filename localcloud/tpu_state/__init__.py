# SPDX-License-Identifier: Apache-2.0
"""What is true in the local cloud: nodes, queued resources, operations, the meter."""
