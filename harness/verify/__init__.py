"""Is it right? Error budgets, oracle checks, golden vectors, padding properties."""
