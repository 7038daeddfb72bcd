# SPDX-License-Identifier: Apache-2.0
"""The parent of the user's command: starts, watches, stops it."""
