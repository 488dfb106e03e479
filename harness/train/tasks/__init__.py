"""One module per task, or family of tasks, each with its ``TASKS``."""
