"""Every configuration of every built-in mechanism, by name, and modules built of options alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias

import pytest
from torch import Tensor, nn

from harness.build import make
from reference_impls.mechanism import Mechanism
from suites.support.batches import HEADS, MECHANISMS, build, widths

Options: TypeAlias = Mapping[str, Any]

DEFAULTS = [f"{m.name}.{m.default or m.implementations[-1].name}" for m in MECHANISMS.values()]
"""The implementation of each mechanism that is meant where only the mechanism is named."""


def mechanism_of(name: str) -> Mechanism:
    """The mechanism of ``mechanism`` or ``mechanism.implementation``."""
    return MECHANISMS[name.partition(".")[0]]


def with_variants(names: list[str]) -> list[tuple[str, str]]:
    """Each name with "default" and with every variant of its mechanism."""
    return [(n, v) for n in names for v in ("default", *mechanism_of(n).variants)]


CONFIGURATIONS = with_variants(DEFAULTS)


def by_day(cases: Iterable[tuple[str, str]]) -> list[Any]:
    """Cases ``(name, variant)`` as parameters: those of a variant are for the nightly session."""
    return [
        pytest.param(*case, marks=() if case[1] == "default" else pytest.mark.nightly)
        for case in cases
    ]


def default_of(name: str) -> str:
    """The default implementation of a mechanism, with its name."""
    return next(d for d in DEFAULTS if d.startswith(f"{name}."))


def implementations(name: str) -> list[str]:
    """All implementations of a mechanism that run on the CPU; none of one that is not there."""
    if name not in MECHANISMS:
        return []  # a test of the names says so, once
    return [f"{name}.{i.name}" for i in MECHANISMS[name].implementations if "cpu" in i.devices]


def of_sentences(name: str) -> bool:
    """Whether there is one output per sequence."""
    return mechanism_of(name).output == "sentence"


def options_of(name: str, variant: str = "default") -> dict[str, Any]:
    """All options of a configuration, ``heads`` included where the mechanism takes it."""
    mechanism = mechanism_of(name)
    options = {**mechanism.options, **mechanism.variants.get(variant, {})}
    return {"heads": HEADS, **options} if mechanism.takes_heads else options


module_of = cache(build)
"""As `build`, but the same module every time: not to be changed."""


def made(name: str, options: Options, state: Mapping[str, Tensor] | None = None) -> nn.Module:
    """A module in float64 with just these options, ``heads`` among them, and a state."""
    mechanism = mechanism_of(name)
    implementation = mechanism.implementation(name.partition(".")[2])
    given = {**options, **implementation.options}
    d_in, d_out = widths(mechanism, given)
    heads = given.pop("heads", 0)
    module = make(mechanism, implementation.factory, d_in, d_out, heads, given).double()
    if state is not None:
        module.load_state_dict(state)
    return module
