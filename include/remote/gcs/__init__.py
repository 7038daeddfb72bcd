# SPDX-License-Identifier: Apache-2.0
"""Cloud Storage over HTTP, standard library only."""
