# SPDX-License-Identifier: Apache-2.0
"""From the pasted grant letter to a grant file."""
