"""Two revisions measured against each other, or two journals compared."""
