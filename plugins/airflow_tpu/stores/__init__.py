# SPDX-License-Identifier: Apache-2.0
"""One kind of object in the bucket each, written under a generation precondition."""
