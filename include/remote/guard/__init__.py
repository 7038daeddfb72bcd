"""Gives the TPU back when Airflow has vanished."""
