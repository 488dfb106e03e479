"""What runs under a revision's mechanisms: its plan, and the time of a case. Runs in children."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import reference_impls
from harness.case import parse
from harness.errors import UsageError
from harness.options.groups import Selection
from harness.plan import plan_of
from harness.profile import load_profile
from harness.registry import Registry


def plan(tree: str, profile: str, device: str, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Cases of a revision: those of the profile and selection that it has.

    Its mechanisms must come from the tree; a selection has the fields of
    `harness.options.groups.Selection`.

    Returns
    -------
    dict
        ``cases``: ids; ``missing``: names asked for that the revision has not, each with a line
        that says so.
    """
    _check_origin(tree)
    registry = Registry()
    chosen = Selection(**{k: _tuples(v) for k, v in selection.items()})
    names, missing = _known(registry, chosen.only)
    told = {"missing": missing}
    whole = load_profile(profile, device)
    of_it = (_known(registry, tuple(group["implementations"]))[0] for group in whole.groups)
    groups = ({**g, "implementations": known} for g, known in zip(whole.groups, of_it, strict=True))
    narrowed = replace(whole, groups=tuple(groups))
    if not (names if chosen.only else any(g["implementations"] for g in narrowed.groups)):
        return {**told, "cases": []}
    wanted = {
        (mechanism.name, implementation.name)
        for name in names
        for mechanism, implementation in registry.select([name.partition("@")[0]])
    }
    cases = plan_of(narrowed, device, registry, replace(chosen, only=tuple(names))).cases
    kept = [
        case.id
        for case in cases
        # The baseline and its control are there for ratios to it, which are not formed here.
        if not case.is_control and (not wanted or (case.mechanism, case.implementation) in wanted)
    ]
    return {**told, "cases": kept}


def time(tree: str, case: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Time a case with the harness's own clock; see `harness.measure.clock.time_case`."""
    import torch

    from harness.measure.clock import time_case

    _check_origin(tree)
    try:
        return time_case(case, (), rounds, seconds, observe=False)
    finally:
        # The GPU's memory is left to the other revision: both hold a context of their own.
        if parse(case).problem.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


def _check_origin(tree: str) -> None:
    origin = Path(reference_impls.__path__[0]).resolve().parent
    if origin != Path(tree).resolve():
        raise RuntimeError(f"the mechanisms are those of {origin}, expected {tree}")


def _known(registry: Registry, names: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Names that the revision has, and what is said of those that it has not."""
    known, missing = [], {}
    for name in names:
        try:
            registry.select([name.partition("@")[0]])
        except UsageError as error:
            missing[name] = str(error)
        else:
            known.append(name)
    return known, missing


def _tuples(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
