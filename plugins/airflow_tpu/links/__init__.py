"""Buttons in the Airflow UI."""
