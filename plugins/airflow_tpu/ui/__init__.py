"""The page *TPU usage* in the Airflow UI: read-only, behind Airflow's own permissions."""
