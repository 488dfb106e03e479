"""One folder a page: page, figures, tables."""
