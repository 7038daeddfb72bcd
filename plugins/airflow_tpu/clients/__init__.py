# SPDX-License-Identifier: Apache-2.0
"""One wire each: gRPC, SSH, HTTP, Airflow's own API. Clients decide nothing."""
