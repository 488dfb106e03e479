"""Every published claim as a record (``claims.toml``), a query for each, and the verdicts."""
