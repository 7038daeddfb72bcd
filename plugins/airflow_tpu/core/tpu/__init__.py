"""A TPU: what is asked for, its labels, its states, what the API's errors mean."""
