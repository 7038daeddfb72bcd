# SPDX-License-Identifier: Apache-2.0
"""Google's rules: names, error texts, pages, quota, what is offered where."""
