"""Exact claims of the papers, checked by computing: Algorithm 1, numbers of weights and heads.

``attnbench verify`` runs them and writes a record for each; ``attnbench claims`` reads those.
"""
