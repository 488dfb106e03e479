"""Mutation testing: small faults put into every mechanism; do the checks notice?

Mutants are made by cosmic-ray's operators and a few of ours (`operators`), drawn (`draw`), and run
by ourselves (`run`, `inside`): a process that has imported torch once forks per mutant, plants the
mutated source in place of the module's own before anything imports it, and runs the checks that
execute the mutated statement (`relevance`), the fastest first, up to the first that fails.
"""
