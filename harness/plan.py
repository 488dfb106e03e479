"""From a profile and what the user selected to the list of cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.case import (
    CONTROL,
    PHASES,
    Case,
    Problem,
    each_once,
    parse,
    setting,
    split_name,
    unique,
)
from harness.errors import UsageError
from harness.options.groups import Selection
from harness.options.readers import POSITIVE
from harness.profile import Profile, load_profile
from harness.registry import Registry


@dataclass(frozen=True)
class Plan:
    """Cases in order, and the profile (with its blocks) they came from."""

    profile: Profile
    cases: tuple[Case, ...]


def _split(text: str) -> tuple[str, int | None]:
    """``mtsa.algorithm1@2`` -> name, 2."""
    name, at, heads = text.partition("@")
    try:
        return name, POSITIVE.read(heads) if at else None
    except ValueError:
        raise UsageError(f"given {text!r}; expected a number of heads after '@'") from None


def _settings(text: str) -> tuple[str, ...]:
    names = tuple(n for n in text.split("+") if n and n != "eager")
    for name in names:
        setting(name)
    return names


def _expand(
    group: Mapping[str, Any],
    registry: Registry,
    selection: Selection,
    device: str,
    profile: Profile,
) -> Iterator[Case]:
    names = [_split(n) for n in group["implementations"]]
    usual = group.get("heads", profile.reference["heads"])
    lists = itertools.product(
        [selection.batch] if selection.batch else group["batch"],
        selection.lengths or group["length"],
        [selection.width] if selection.width else group["width"],
        selection.dtypes or group["dtype"],
        selection.passes or group.get("phase", PHASES),
        [_settings(s) for s in selection.settings or group.get("settings", [profile.setting])],
    )
    for batch, length, (d_in, d_out), dtype, phase, settings in lists:
        for name, own_heads in names:
            bare, own = split_name(name)
            mechanism, implementation = registry.find(bare)
            # A factory that is not loaded here is given them if it names them.
            no_heads = mechanism.takes_heads is False
            heads = 0 if no_heads else selection.heads or own_heads or usual
            width = d_in if mechanism.keeps_width else d_out
            problem = Problem(batch, length, d_in, width, heads, dtype, phase, device)
            # Options are the user's own mechanism's; the baseline stays what it is.
            more = () if name == profile.baseline else selection.option
            options = each_once((*own, *more))
            yield Case(mechanism.name, implementation.name, problem, settings, options)


def _chosen(registry: Registry, selection: Selection) -> list[tuple[str, int | None]]:
    """Implementations asked for with their heads; ``--with`` alone asks for what it gives.

    Options stay behind the name: ``disa.chunked[direction=forward]``.
    """
    asked = [_split(text) for text in selection.only or registry.given_names]
    registry.refuse_unnamed([name for name, _ in asked])
    for name, heads in asked:
        if heads and selection.heads:
            raise UsageError(f"--heads: given {selection.heads} beside {name}@{heads}; give one")
    bare = [(split_name(name)[0], name, heads) for name, heads in asked]
    return [
        (f"{mechanism.name}.{implementation.name}{name.removeprefix(known)}", heads)
        for known, name, heads in bare
        for mechanism, implementation in registry.select([known])
    ]


def _chosen_groups(
    profile: Profile, registry: Registry, selection: Selection
) -> list[Mapping[str, Any]]:
    """The profile's groups, narrowed to (or rebuilt for) the implementations asked for."""
    chosen = _chosen(registry, selection)
    if not chosen:
        return list(profile.groups)
    groups: list[Mapping[str, Any]] = []
    for group in profile.groups:
        alone = group.get("alone", False)
        kept = [] if alone else [f"{profile.baseline}@{profile.reference['heads']}"]
        for name, heads in chosen:
            listed = [n for n in group["implementations"] if split_name(_split(n)[0])[0] == name]
            if listed and (alone or not heads):
                kept += listed
            elif not alone:
                kept.append(f"{name}@{heads}" if heads else name)
        groups.append({**group, "implementations": list(dict.fromkeys(kept))})
    return groups


def make_plan(
    profile_name: str, device: str, registry: Registry, selection: Selection | None = None
) -> Plan:
    """Expand a named profile; see `plan_of`.

    Raises
    ------
    UsageError
        Also for an unknown profile.
    """
    profile = load_profile(profile_name, device)
    return plan_of(profile, device, registry, selection or Selection())


def plan_of(profile: Profile, device: str, registry: Registry, selection: Selection) -> Plan:
    """Expand a profile into cases, the baseline and its A/A control in every problem.

    Raises
    ------
    UsageError
        For an unknown mechanism, dtype, phase or setting, or an empty plan.
    """
    if selection.blocks is not None:
        # Who asks for a number of blocks gets it, however long it takes.
        profile = replace(profile, blocks=selection.blocks, budget_seconds=None)
    heads = selection.heads or profile.reference["heads"]
    profile = replace(profile, reference={**profile.reference, "heads": heads})
    cases: list[Case] = []
    for group in _chosen_groups(profile, registry, selection):
        cases += _expand(group, registry, selection, device, profile)
    cases = unique(cases)
    if not cases:
        raise UsageError("nothing to measure: the selection left no case")
    controls = [
        c.control() for c in cases if (c.name, c.problem.heads) == (profile.baseline, heads)
    ]
    _check_cases(cases, registry)
    return Plan(profile, tuple(unique([*cases, *controls])))


def frontier_cases(device: str, registry: Registry, selection: Selection) -> tuple[Case, ...]:
    """Cases whose longest sequence is looked for: the papers' widths, training, no baseline.

    Without names the default implementation of every mechanism; lengths of the selection are not
    looked at, and that of the cases means nothing.

    Raises
    ------
    UsageError
        As `make_plan`.
    """
    profile = replace(load_profile("quick", device), baseline="")
    chosen = _chosen(registry, selection) or [(name, None) for name in registry.mechanisms]
    group = {
        "implementations": [name if heads is None else f"{name}@{heads}" for name, heads in chosen],
        "batch": [profile.reference["batch"]],
        "length": [1],
        "width": [[300, 600]],
        "dtype": ["f32"],
        "phase": ["training"],
    }
    return tuple(cases_of(group, device, registry, profile, replace(selection, lengths=())))


def cases_of(
    group: Mapping[str, Any],
    device: str,
    registry: Registry,
    profile: Profile,
    selection: Selection | None = None,
) -> list[Case]:
    """Expand one group of the form that profiles have, without a baseline.

    Raises
    ------
    UsageError
        As `make_plan`.
    """
    cases = unique(_expand(group, registry, selection or Selection(), device, profile))
    _check_cases(cases, registry)
    return cases


def _check_cases(cases: Sequence[Case], registry: Registry) -> None:
    """Refuse cases that can't be, before anything is measured."""
    for case in cases:
        case.run_settings()
        if CONTROL in case.settings:
            raise UsageError("setting 'control' is the baseline's own second name; leave it out")
        if parse(case.id) != case:
            raise UsageError(
                f"{case.name!r} can't stand in a case id; use a name without '.' or '-'"
            )
        mechanism, p = registry.mechanism(case.mechanism), case.problem
        if p.heads and "heads" in dict(case.options):
            bare = case.name.partition("[")[0]
            raise UsageError(
                f"{case.name}: how many heads a case has is no option of it; write "
                f"{bare}@{dict(case.options)['heads']}"
            )
        if not (mechanism.takes_heads and p.heads):
            continue
        if p.d_out % p.heads:
            raise UsageError(
                f"{case.id}: {p.heads} heads, output width {p.d_out}; "
                "give a number of heads that divides it (--heads), or another --width"
            )
        if mechanism.even_heads and p.heads % 2:
            raise UsageError(
                f"{case.id}: {p.heads} heads; {mechanism.name} gives half of them a forward "
                "and half a backward mask and needs an even number"
            )
