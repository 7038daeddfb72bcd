# SPDX-License-Identifier: Apache-2.0
"""What the grant allows, and whether it covers one create."""
