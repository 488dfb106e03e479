"""Self-attention mechanisms: records, independent oracles and implementations."""
