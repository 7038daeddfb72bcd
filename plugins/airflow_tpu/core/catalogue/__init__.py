# SPDX-License-Identifier: Apache-2.0
"""What Cloud TPU offers: types, zones, prices, runtime versions and transfer rates."""
