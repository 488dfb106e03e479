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
    """What a run measures, read from ``profiles.toml``.

    Attributes
    ----------
    name, summary : str
    baseline : str
        ``mechanism.implementation`` that all ratios are formed to.
    subject : str
        ``mechanism.implementation`` that the closing sentences speak about.
    reference : mapping
        batch, length, heads of the size that the closing sentences speak about.
    blocks, memory_blocks : int
        Fresh interpreters for time, and in how many of them memory is measured as well.
    min_rounds, seconds : int, float
        Samples of one case in one block: at least so many calls, and so much time.
    setting : str
        Setting of groups that name none.
    budget_seconds : float or None
        No further block is begun that would end later than this, once there are three.
    limit_seconds : float
        A case that takes longer in one block is a ``timeout``.
    groups : tuple of mapping
        Products of implementations, problems and settings. One that says ``alone`` has nothing but
        its own implementations: what else is asked for, and the baseline, keep their own widths.
    """

    name: str
    summary: str
    baseline: str
    subject: str
    reference: Mapping[str, int]
    blocks: int
    memory_blocks: int
    min_rounds: int
    seconds: float
    setting: str
    budget_seconds: float | None
    limit_seconds: float
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
    p |= {key: p[key][device] for key in ("blocks", "setting")}
    of_device = (g for g in p.pop("cases") if device in g.get("devices", ("cpu", "cuda")))
    return Profile(**p, groups=tuple(of_device))
