"""The verbs of the product in their order, without Airflow: ensure, train, release, reap."""
