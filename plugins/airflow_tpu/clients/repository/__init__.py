# SPDX-License-Identifier: Apache-2.0
"""A git repository, read through the program git: which commits it has, and the files of one."""
