"""Is it right: oracles, goldens, modules, mutants."""
