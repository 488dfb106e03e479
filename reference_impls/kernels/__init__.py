"""Attention over ranges of keys, with source2token weights: one mathematics, several machines."""
