# SPDX-License-Identifier: Apache-2.0
"""The user's process on the TPU: launched, followed, resumed, collected."""
