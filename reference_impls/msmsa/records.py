"""Records that every mechanism with windows has alike."""

from __future__ import annotations

from reference_impls.mechanism import Implementation

_BACKENDS = {
    "native": ("a native kernel, compiled on first use", ("cpu",)),
    "tiled": ("tiles in plain torch", ("cpu", "cuda")),
    "triton": ("Triton kernels", ("cuda",)),
    "flex": ("torch's FlexAttention", ("cuda",)),
}


def fused(factory: str) -> tuple[Implementation, ...]:
    """Implementations by `reference_impls.kernels`: its own choice, and each backend by itself."""
    chosen = Implementation(
        "fused", factory, "ranges of keys in one pass, linear memory", mask_optional=True
    )
    forced = [
        Implementation(
            f"fused_{name}",
            factory,
            f"ranges of keys by {what}",
            options={"backend": name},
            devices=devices,
            mask_optional=True,
        )
        for name, (what, devices) in _BACKENDS.items()
    ]
    return (chosen, *forced)
