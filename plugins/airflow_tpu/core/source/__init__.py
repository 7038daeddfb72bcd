# SPDX-License-Identifier: Apache-2.0
"""What a person brings: which of their files travel to the TPU VM, and what starts them there."""
