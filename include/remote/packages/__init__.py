# SPDX-License-Identifier: Apache-2.0
"""The packages of a run: an environment for them, what is installed into it, wheels kept in the bucket."""
