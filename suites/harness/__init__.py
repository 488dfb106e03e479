"""Tests of the harness itself: faults, processes, records, statistics."""
