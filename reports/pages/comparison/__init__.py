"""Trained models against a baseline: a pair, or more of a family."""
