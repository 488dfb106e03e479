"""Training: the data, the tasks and the runs."""
