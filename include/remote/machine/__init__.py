"""This machine: its processes, the run's directory, the run's state."""
