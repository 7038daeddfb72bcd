# SPDX-License-Identifier: Apache-2.0
"""What is looked at before anything is created."""
