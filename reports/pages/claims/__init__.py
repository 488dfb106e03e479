"""A verdict for every published claim."""
