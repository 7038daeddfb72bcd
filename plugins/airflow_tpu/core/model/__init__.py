# SPDX-License-Identifier: Apache-2.0
"""A trained model: its manifest, the comparison with the champion, its fingerprint."""
