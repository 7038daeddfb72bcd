"""The commands that Airflow calls, and the restore step: one module each."""
