"""One wire each: gRPC, SSH, HTTP, Airflow's own API. Clients decide nothing."""
