# SPDX-License-Identifier: Apache-2.0
"""The methods of the JSON interface, and what TensorFlow reads by the XML one."""
