# SPDX-License-Identifier: Apache-2.0
"""One worker VM: its interface, and the files, keys and address that every tier gives it."""
