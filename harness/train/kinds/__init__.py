"""Kinds of tasks, a module each: see `harness.train.objective`."""
