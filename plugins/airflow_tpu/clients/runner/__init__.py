# SPDX-License-Identifier: Apache-2.0
"""The runner on a worker of a TPU: the connection to it, its installation, and what it is asked."""
