# SPDX-License-Identifier: Apache-2.0
"""Create a TPU: adopt what is there or request it, and what creates that keep failing come to."""
