# SPDX-License-Identifier: Apache-2.0
"""HTTP as Cloud Storage speaks it: requests, ranges, multipart, TLS."""
