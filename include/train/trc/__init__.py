# SPDX-License-Identifier: Apache-2.0
"""The library of the script contract: copy what you need into your own project."""
