"""The harness: plan, isolate, verify, measure, record."""
