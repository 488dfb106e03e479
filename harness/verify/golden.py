"""Check implementations against golden vectors: outputs of the authors' own programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.errors import UsageError
from harness.registry import Registry, resolve
from harness.verify.budget import CAP, budget, error
from harness.verify.check import run_module
from reference_impls.mechanism import Implementation, Mechanism, Unsupported

TOLERANCE = {"f32": 1e-5, "f64": 1e-10}
"""Relative to max(1, max|expected|), as the goldens' own page states them."""


@dataclass(frozen=True)
class Golden:
    """One file.

    Attributes
    ----------
    path : Path
    config : mapping
    arrays : mapping of ndarray
    """

    path: Path
    config: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def label(self) -> str:
        """``folder/file``."""
        return f"{self.path.parent.name}/{self.path.stem}"


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


def _owner(name: str, registry: Registry) -> tuple[Mechanism, str] | None:
    for mechanism in registry.mechanisms.values():
        if name in mechanism.goldens:
            return mechanism, mechanism.goldens[name]
    return None


def _comparisons(golden: Golden, dtype: str) -> tuple[str, str]:
    """Names of the arrays that a dtype is held against."""
    valid = golden.config.get("reference_float32_valid")
    if dtype == "f32" and valid and "output" in golden.arrays:
        return "output", "grad_x"
    return "output_f64", "grad_x_f64"


def _adapted(golden: Golden, adapter: str) -> tuple[Golden, dict[str, Any], Any, int]:
    """The file as the adapter sees it: arrays, options, weights, d_out."""
    found = resolve(adapter)(dict(golden.config), dict(golden.arrays))
    options, weights, d_out = found[:3]
    arrays = {**golden.arrays, **(found[3] if len(found) > 3 else {})}
    return Golden(golden.path, golden.config, arrays), options, weights, d_out


def _without_padded_rows(
    golden: Golden, mechanism: Mechanism, adapter: str
) -> Mapping[str, np.ndarray]:
    """The arrays with what padded rows add to the gradient of x taken out, where that is known.

    Programs in which the amount of padding matters hold values there, and the cotangent counts
    them; the oracle of such a mechanism (held against the whole file by its own test) knows them.
    """
    given, options, weights, _ = _adapted(golden, adapter)
    a = given.arrays
    if not (mechanism.padding_matters and mechanism.oracle and mechanism.output == "tokens"):
        return a
    naive = resolve(mechanism.oracle)
    length = a["mask"].shape[1]
    extra = np.zeros(a["x"].shape)
    for b, n in enumerate(a["mask"].sum(axis=1)):
        rows = np.arange(n, length)
        x, g = a["x"][b, :n].astype(np.float64), a["grad_out"][b, n:].astype(np.float64)
        asked = {**mechanism.options, **options, "padded": length}
        extra[b, :n] = naive(x, weights, rows, g, **asked)[1]
    kept = np.where(a["mask"][..., None], a["grad_out"], 0)
    gradients = {name: a[name] - extra for name in ("grad_x", "grad_x_f64")}
    return {**a, "grad_out": kept, **gradients}


def _module(
    golden: Golden, mechanism: Mechanism, adapter: str, factory: str, extra: Mapping[str, Any]
) -> torch.nn.Module:
    golden, options, weights, d_out = _adapted(golden, adapter)
    options = {**mechanism.options, **options, **extra}
    heads = options.pop("heads", 0)
    d_in = golden.arrays["x"].shape[-1]
    module = make(mechanism, factory, d_in, d_out, heads, options).double()
    # Strict: a weight that is missing, left over or of another shape is an error.
    state = {name: torch.from_numpy(np.asarray(w, dtype=np.float64)) for name, w in weights.items()}
    module.load_state_dict(state)
    return module


def check_one(
    golden: Golden, mechanism: Mechanism, implementation: Implementation, adapter: str, dtype: str
) -> dict[str, Any]:
    """Compare values and input gradient of one implementation in one dtype.

    Returns
    -------
    dict
        ``verdict`` (ok, wrong, unsupported), ``error``, ``tolerance``, ``detail``.
    """
    a = _without_padded_rows(golden, mechanism, adapter)
    row = {
        "golden": golden.label,
        "name": f"{mechanism.name}.{implementation.name}",
        "dtype": dtype,
    }
    kind = torch_dtype(dtype)
    module = _module(golden, mechanism, adapter, implementation.factory, implementation.options)
    module = module.to(kind).train()
    x = torch.from_numpy(a["x"]).to(kind)
    mask = torch.from_numpy(a["mask"])
    out_name, grad_name = _comparisons(golden, dtype)
    expected = a[out_name].astype(np.float64)
    cotangent = torch.from_numpy(a["grad_out"]) if "grad_out" in a else torch.zeros(expected.shape)
    real = a["mask"]
    tokens = expected.ndim == 3
    if tokens:
        # Released programs leave values at padding; ours are zero there and send no gradient.
        cotangent = cotangent.masked_fill(~mask[..., None], 0)
    try:
        out, grad_x, _ = run_module(module, x, mask, cotangent.to(kind))
    except Unsupported as reason:
        return {**row, "verdict": "unsupported", "detail": str(reason)}
    pick = real if tokens else slice(None)
    plain: tuple[float | None, float | None] = (None, None)
    published = golden.config.get("reference_float32_valid") is not None
    if not published and dtype == "f32" and mechanism.plain is not None:
        yard = _module(golden, mechanism, adapter, mechanism.plain, {}).to(kind).train()
        p_out, p_grad, _ = run_module(yard, x, mask, cotangent.to(kind))
        grad_error = error(p_grad[real], a[grad_name][real]) if grad_name in a else None
        plain = error(p_out[pick], expected[pick]), grad_error
    findings = [("output", error(out[pick], expected[pick]), plain[0])]
    skipped = ""
    if grad_name in a and not _same_rows(a, real, tokens):
        skipped = "; gradient not comparable: the released program's padded rows hold values"
    elif grad_name in a:
        want = a[grad_name].astype(np.float64)
        findings.append(("grad of x", error(grad_x[real], want[real]), plain[1]))
    worst = max(findings, key=lambda f: f[1] / _tolerance(published, f[2], dtype))
    tolerance = _tolerance(published, worst[2], dtype)
    return {
        **row,
        "verdict": "ok" if worst[1] <= tolerance else "wrong",
        "error": worst[1],
        "tolerance": tolerance,
        "detail": f"{worst[0]} against {out_name if worst[0] == 'output' else grad_name}{skipped}",
    }


def _same_rows(arrays: Mapping[str, np.ndarray], real: np.ndarray, tokens: bool) -> bool:
    """Whether the golden's gradient can be compared.

    Its cotangent counts real rows only, or its padded rows do not depend on x.
    """
    if not tokens or real.all():
        return True
    return (
        True if not np.any(arrays["grad_out"][~real]) else not np.any(arrays["output_f64"][~real])
    )


def _tolerance(published: bool, plain_error: float | None, dtype: str) -> float:
    """The authors' programs: the goldens' tolerances; the papers' own forms: the error budget."""
    if published:
        return TOLERANCE[dtype]
    return CAP["f64"] if dtype == "f64" else budget(plain_error, dtype)


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
    kind = str(golden.config.get("mechanism"))
    owner = _owner(kind, registry)
    if owner is None:
        detail = f"{kind!r} belongs to no mechanism that is registered"
        return {"golden": golden.label, "verdict": "skipped", "detail": detail, "rows": []}
    mechanism, adapter = owner
    wanted = {f"{m.name}.{i.name}" for m, i in registry.select(names)} if names else None
    rows = [
        check_one(golden, mechanism, implementation, adapter, dtype)
        for implementation in mechanism.implementations
        if "cpu" in implementation.devices
        and (wanted is None or f"{mechanism.name}.{implementation.name}" in wanted)
        for dtype in ("f64", "f32")
    ]
    if not rows:
        return None
    checked = [r for r in rows if r["verdict"] != "unsupported"]
    if not checked:
        detail = str(rows[0]["detail"])
        return {"golden": golden.label, "verdict": "skipped", "detail": detail, "rows": rows}
    worst = max(checked, key=lambda r: r["error"] / r["tolerance"])
    bad = any(r["verdict"] == "wrong" for r in checked)
    detail = (
        f"{len(checked)} checks, worst {worst['name']} {worst['dtype']}: error "
        f"{worst['error']:.1e}, tolerance {worst['tolerance']:.1e}, {worst['detail']}"
    )
    verdict = "wrong" if bad else "ok"
    return {"golden": golden.label, "verdict": verdict, "detail": detail, "rows": rows}
