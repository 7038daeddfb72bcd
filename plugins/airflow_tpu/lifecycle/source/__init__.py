# SPDX-License-Identifier: Apache-2.0
"""What a run brings from elsewhere: the commit that it trains, its files on this worker, the secrets of its script."""
