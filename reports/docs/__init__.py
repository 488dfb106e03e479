"""``docs/results`` and the README's table, written from the published records."""
