# SPDX-License-Identifier: Apache-2.0
"""Objects, buckets and their contents on disk, without HTTP."""
