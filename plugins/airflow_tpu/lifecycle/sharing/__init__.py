# SPDX-License-Identifier: Apache-2.0
"""What several Airflows of one project share: whose is what."""
