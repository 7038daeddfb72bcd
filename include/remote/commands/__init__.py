"""What Airflow tells the runner to do, one module a command."""
