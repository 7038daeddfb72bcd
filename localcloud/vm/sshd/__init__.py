# SPDX-License-Identifier: Apache-2.0
"""OpenSSH's server below a supervisor: the two tiers that are real."""
