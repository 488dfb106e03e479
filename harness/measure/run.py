"""One pass of a case as a callable, the same for clock and memory. Runs in children."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.build import apply_settings, case_inputs, case_module, compiled
from harness.case import Case, parse
from harness.registry import Registry
from reference_impls.mechanism import Unsupported


@dataclass
class Prepared:
    """A case that is ready to run.

    Attributes
    ----------
    call : callable
        One pass. For training: forward, backward, gradients of input and weights freshly
        allocated (the old ones are dropped first).
    reset : callable
        Drops the gradients of the last pass.
    finite : callable
        Whether the last output, and in training every gradient, is; outside the timed region.
    resident_bytes : int
        Weights and input.
    build_seconds : float
        From nothing to a callable, compilation excluded.
    """

    case: Case
    call: Callable[[], None]
    reset: Callable[[], None]
    finite: Callable[[], bool]
    resident_bytes: int
    build_seconds: float


def prepare(case_id: str, given: Sequence[str] = (), seed: int = 0) -> Prepared:
    """Build module, input and cotangent of a case under its settings.

    Raises
    ------
    Unsupported
        If implementation, device and settings don't go together.
    """
    start = time.perf_counter()
    case = parse(case_id)
    if case.problem.device == "cuda":
        # The process serves many cases: what the last one left must not count for this one.
        gc.collect()
        torch.cuda.empty_cache()
    settings = case.run_settings()
    apply_settings(case)
    mechanism, implementation, module = case_module(case, Registry(given), seed)
    x, mask = case_inputs(case, implementation, seed)
    p = case.problem
    run: Callable[..., torch.Tensor] = compiled(module, case)
    held: dict[str, torch.Tensor] = {}
    training = p.phase == "training"
    x.requires_grad_(training)
    shape = (p.batch, p.length, p.d_out) if mechanism.output == "tokens" else (p.batch, p.d_out)
    cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(seed + 2)).to(x)

    def reset() -> None:
        held.clear()
        x.grad = None
        for parameter in module.parameters():
            parameter.grad = None

    def forward() -> None:
        with torch.inference_mode():
            held["output"] = run(x, mask)

    def train() -> None:
        reset()
        output = run(x, mask)
        output.backward(cotangent)
        held["output"] = output.detach()

    def finite() -> bool:
        gradients = (tensor.grad for tensor in [x, *module.parameters()])
        results = [held["output"], *(g for g in gradients if g is not None)]
        return all(bool(torch.isfinite(r).all()) for r in results)

    tensors = [x, cotangent] if training else [x]
    tensors += [*module.parameters(), *module.buffers()]
    resident = sum(t.numel() * t.element_size() for t in tensors)
    prepared = Prepared(
        case=case,
        call=train if training else forward,
        reset=reset,
        finite=finite,
        resident_bytes=resident,
        build_seconds=time.perf_counter() - start,
    )
    if settings.graphed:
        prepared.call = _graphed(prepared)
    return prepared


def _graphed(prepared: Prepared) -> Callable[[], None]:
    """Capture one pass in a CUDA graph and return its replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            prepared.call()
    torch.cuda.current_stream().wait_stream(side)
    prepared.reset()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            prepared.call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unsupported(
            f"can't be captured in a CUDA graph: {str(error).splitlines()[0]}"
        ) from error
    return graph.replay
