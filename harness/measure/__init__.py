"""What does it cost? Blocks, clock, memory, device, ratios."""
