"""All experiments on one page."""
