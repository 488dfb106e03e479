"""What a run measures: profiles, read from ``profiles.toml``, and what narrows them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError


@dataclass(frozen=True)
class Profile:
    """What a run measures, read from ``profiles.toml``."""

    name: str
    summary: str
    baseline: str  # ``mechanism.implementation`` that all ratios are formed to
    subject: str  # ``mechanism.implementation`` that the closing sentences speak about
    # batch, length, heads of the size that the closing sentences speak about.
    reference: Mapping[str, int]
    # blocks, memory_blocks: fresh interpreters for time, and in how many of them memory is measured
    # as well.
    blocks: int
    memory_blocks: int
    # min_rounds, seconds: samples of one case in one block: at least so many calls, and so much
    # time.
    min_rounds: int
    seconds: float
    setting: str  # setting of groups that name none
    # No further block is begun that would end later than this, once there are three.
    budget_seconds: float | None
    limit_seconds: float  # a case that takes longer in one block is a ``timeout``
    # Products of implementations, problems and settings. One that says ``alone`` has nothing but
    # its own implementations: what else is asked for, and the baseline, keep their own widths.
    groups: tuple[Mapping[str, Any], ...]


def load_profiles(path: Path | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the raw profiles by name."""
    path = path or Path(__file__).with_name("profiles.toml")
    with path.open("rb") as file:
        return tomllib.load(file)


def load_profile(name: str, device: str, path: Path | None = None) -> Profile:
    """Return the profile for a device.

    Raises
    ------
    UsageError
        If there is no such profile.
    """
    raw = load_profiles(path)
    if name not in raw:
        raise UsageError(f"unknown profile {name!r}; use one of {', '.join(raw)}")
    p = {"name": name, "budget_seconds": None, **raw[name]}
    p |= {k: v[device] for k, v in p.items() if isinstance(v, dict) and device in v}
    of_device = (g for g in p.pop("cases") if device in g.get("devices", ("cpu", "cuda")))
    return Profile(**p, groups=tuple(of_device))
