# SPDX-License-Identifier: Apache-2.0
"""Asynchronous waits that hold no worker slot."""
