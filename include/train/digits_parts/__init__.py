# SPDX-License-Identifier: Apache-2.0
"""The parts of digits.py: data, model, training, one attempt of a run, export."""
