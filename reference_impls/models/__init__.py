"""Whole models around any context fusion: of sentences and pairs, of tags, of translations."""
