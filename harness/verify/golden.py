"""Check implementations against golden vectors: the authors' own programs, papers' own forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.errors import UsageError
from harness.registry import Registry, resolve
from harness.verify.budget import CAP, Deviation, budget, worst
from harness.verify.compare import OUTPUT, Computed, compare, computed, numpy64
from reference_impls.mechanism import Implementation, Mechanism, Unsupported

TOLERANCE = {"f32": 1e-5, "f64": CAP["f64"]}
"""Relative to max(1, max|expected|), as the goldens' own page states them."""


@dataclass(frozen=True)
class Golden:
    """One file."""

    path: Path
    config: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def label(self) -> str:
        """``folder/file``."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def mechanism(self) -> str:
        """What it is of, as its file says: a key of a record's goldens."""
        return str(self.config.get("mechanism"))


def load(path: Path) -> Golden:
    """Read a golden ``.npz``; nothing in it is unpickled.

    Raises
    ------
    UsageError
        If it is not one.
    """
    try:
        with np.load(path, allow_pickle=False) as z:
            arrays = {name: z[name] for name in z.files}
        config = json.loads(str(arrays.pop("config")))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as reason:
        raise UsageError(
            f"{path} is not a golden file ({reason}); expected an .npz with a JSON 'config'"
        ) from None
    return Golden(path, config, arrays)


def _expected(arrays: Mapping[str, np.ndarray], name: str) -> tuple[str, np.ndarray]:
    """The array that says what is right, in float64 where there is one, and its name."""
    told = f"{name}_f64" if f"{name}_f64" in arrays else name
    return told, arrays[told].astype(np.float64)


def _against(
    told: str, golden: Golden, got: Computed, want: Computed, plain: Computed | None, dtype: str
) -> list[Deviation]:
    """Deviations from an array of this name.

    In float64 the goldens' own tolerance is allowed; in float32 the error budget, from what the
    plain yardstick makes of the same case, because the program's own float32 may be the worse of
    the two. Where a program's float32 is all there is, the goldens' tolerance.
    """
    gradients_wider = golden.config.get("reference_float32_valid") is not None

    def allow(plain_error: float | None, dtype: str, gradient: bool) -> float:
        if not told.endswith("_f64"):
            return TOLERANCE["f32"]
        if dtype == "f64":
            return TOLERANCE["f64"]
        # The papers' own forms promise more: their gradients are held to the budget of values.
        return budget(plain_error, dtype, gradient and gradients_wider)

    return compare(got, want, plain, dtype, f"against {told}", allow)


def _with_yardstick(
    run: Callable[[str, Mapping[str, Any]], Computed],
    mechanism: Mechanism,
    implementation: Implementation,
    dtype: str,
) -> tuple[Computed, Computed | None]:
    """What an implementation says, and plain beside it where float64 does not decide."""
    yardstick = dtype != "f64" and mechanism.plain is not None
    plain = run(str(mechanism.plain), {}) if yardstick else None
    return run(implementation.factory, implementation.options), plain


def _of_mechanism(
    golden: Golden, mechanism: Mechanism, implementation: Implementation, dtype: str
) -> tuple[list[Deviation], str]:
    """Deviations of the output and of the gradient of x, and what could not be compared."""
    adapter = resolve(mechanism.goldens[golden.mechanism])
    adapted, weights, d_out, *instead = adapter(dict(golden.config), dict(golden.arrays))
    a, kind = {**golden.arrays, **(instead[0] if instead else {})}, torch_dtype(dtype)
    x, mask = torch.from_numpy(a["x"]).to(kind), torch.from_numpy(a["mask"])
    told, want = _expected(a, OUTPUT)
    cotangent = torch.from_numpy(a["grad_out"]) if "grad_out" in a else torch.zeros(want.shape)
    real = a["mask"]
    tokens = want.ndim == 3
    if tokens:
        # Released programs leave values at padding; ours are zero there and send no gradient.
        cotangent = cotangent.masked_fill(~mask[..., None], 0)
    # A sample without any real token is pooled to something undefined.
    rows = real if tokens else real.any(axis=1)

    def run(factory: str, extra: Mapping[str, Any]) -> Computed:
        options = {**mechanism.options, **adapted, **extra}
        heads = options.pop("heads", 0)
        module = make(mechanism, factory, a["x"].shape[-1], d_out, heads, options).double()
        # Strict: a weight that is missing, left over or of another shape is an error.
        state = {n: torch.from_numpy(np.asarray(w, np.float64)) for n, w in weights.items()}
        module.load_state_dict(state)
        found = computed(module.to(kind).train(), x, mask, cotangent.to(kind))
        return Computed({OUTPUT: found.output[rows]}, {"x": found.gradients["x"][real]})

    got, plain = _with_yardstick(run, mechanism, implementation, dtype)
    values = Computed({OUTPUT: want[rows]})
    found = _against(told, golden, Computed(got.values), values, plain, dtype)
    if "grad_out" not in a:
        return found, ""
    # Of real rows alone it is where the others have no cotangent, or hold zeros.
    if tokens and np.any(a["grad_out"][~real]) and np.any(want[~real]):
        return found, "; gradient not comparable: the released program's padded rows hold values"
    told, want = _expected(a, "grad_x")
    slopes = Computed({}, {"x": want[real]})
    return found + _against(told, golden, Computed({}, got.gradients), slopes, plain, dtype), ""


def _of_part(
    golden: Golden, mechanism: Mechanism, implementation: Implementation, dtype: str
) -> tuple[list[Deviation], str]:
    """Deviations of all that a part of a mechanism, or a model around it, computes."""

    def run(factory: str, extra: Mapping[str, Any]) -> Computed:
        def build(d_in: int, d_out: int, heads: int, options: Mapping[str, Any]) -> torch.nn.Module:
            every = {**mechanism.options, **options, **extra}
            return make(mechanism, factory, d_in, d_out, heads, every)

        part = resolve(mechanism.part_goldens[golden.mechanism])
        found = part(dict(golden.config), dict(golden.arrays), build, torch_dtype(dtype))
        return Computed({name: numpy64(tensor) for name, tensor in found.items()})

    got, plain = _with_yardstick(run, mechanism, implementation, dtype)
    found = []
    for name, mine in got.values.items():
        told, want = _expected(golden.arrays, name)
        values, expected = Computed({name: mine}), Computed({name: want})
        found += _against(told, golden, values, expected, plain, dtype)
    return found, ""


def check_one(
    golden: Golden, mechanism: Mechanism, implementation: Implementation, dtype: str
) -> dict[str, Any]:
    """Compare what one implementation computes in one dtype.

    Returns
    -------
    dict
        ``verdict`` (ok, wrong, unsupported), ``error``, ``tolerance``, ``detail``.
    """
    row = {
        "golden": golden.label,
        "name": f"{mechanism.name}.{implementation.name}",
        "dtype": dtype,
    }
    of = _of_part if golden.mechanism in mechanism.part_goldens else _of_mechanism
    try:
        found, left_out = of(golden, mechanism, implementation, dtype)
    except Unsupported as reason:
        return {**row, "verdict": "unsupported", "detail": str(reason)}
    least = worst(found)
    return {
        **row,
        "verdict": "ok" if all(d.ok for d in found) else "wrong",
        "error": least.error,
        "tolerance": least.budget,
        "detail": f"{least.what}{left_out}",
    }


def check_path(
    path: str, given: Sequence[str] = (), names: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Check one golden file with every implementation of its mechanism, float64 and float32.

    Parameters
    ----------
    names : sequence of str
        Only these mechanisms or implementations; empty: all.

    Returns
    -------
    dict or None
        ``golden``, ``verdict`` (ok, wrong, skipped), ``detail`` and ``rows``, one per
        implementation and dtype; None if `names` leaves nothing.
    """
    registry = Registry(given)
    golden = load(Path(path))
    owners = [
        m
        for m in registry.mechanisms.values()
        if golden.mechanism in {**m.goldens, **m.part_goldens}
    ]
    if not owners:
        detail = f"{golden.mechanism!r} belongs to no mechanism that is registered"
        return {"golden": golden.label, "verdict": "skipped", "detail": detail, "rows": []}
    mechanism = owners[0]
    rows = [
        check_one(golden, mechanism, implementation, dtype)
        for owner, implementation in registry.select(names or [mechanism.name])
        if owner is mechanism and "cpu" in implementation.devices
        for dtype in ("f64", "f32")
    ]
    if not rows:
        return None
    checked = [r for r in rows if r["verdict"] != "unsupported"]
    if not checked:
        detail = str(rows[0]["detail"])
        return {"golden": golden.label, "verdict": "skipped", "detail": detail, "rows": rows}
    least = max(checked, key=lambda r: r["error"] / r["tolerance"])
    detail = (
        f"{len(checked)} checks, worst {least['name']} {least['dtype']}: error "
        f"{least['error']:.1e}, tolerance {least['tolerance']:.1e}, {least['detail']}"
    )
    verdict = "wrong" if any(r["verdict"] == "wrong" for r in checked) else "ok"
    return {"golden": golden.label, "verdict": verdict, "detail": detail, "rows": rows}
