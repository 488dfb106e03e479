"""What the verify suite is parametrised by."""

from __future__ import annotations

from harness.registry import builtins

DTYPES = ("f64", "f32", "bf16")


def implementations(device: str) -> list[str]:
    """``mechanism.implementation`` of everything built in that runs on a device."""
    return [
        f"{mechanism.name}.{implementation.name}"
        for mechanism in builtins().values()
        for implementation in mechanism.implementations
        if device in implementation.devices
    ]
