# SPDX-License-Identifier: Apache-2.0
"""The TLS front of the storage server: TensorFlow's own ``gs://`` arrives here."""
