# SPDX-License-Identifier: Apache-2.0
"""What a person asks for: the fields of the trigger form, read and checked."""
