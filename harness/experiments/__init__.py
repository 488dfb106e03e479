"""Comparing trained models: the design, declared first; the runs; what can be concluded."""
