# SPDX-License-Identifier: Apache-2.0
"""A TPU: what is asked for, its labels, its states, what the API's errors mean."""
