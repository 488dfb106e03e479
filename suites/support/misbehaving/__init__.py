"""Modules that misbehave on purpose: ``--with suites.support.misbehaving.cheats:LazyTensor``."""
