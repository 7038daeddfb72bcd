# SPDX-License-Identifier: Apache-2.0
"""The wire of the Cloud TPU API: gRPC and REST servers, the dispatcher, every method."""
