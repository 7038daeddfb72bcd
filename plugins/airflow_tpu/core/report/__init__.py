# SPDX-License-Identifier: Apache-2.0
"""The usage as people and programs read it: text, JSON, months, charts, tables."""
