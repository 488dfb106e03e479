"""One pass of a case as a callable, the same for clock and memory, and what it launches.

Runs in children.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from harness.build import (
    apply_settings,
    case_inputs,
    case_module,
    compiled,
    graph_of,
    warm_for_capture,
)
from harness.case import Case, parse
from harness.inputs import INPUT, OUTPUT, Inputs, gradient_of, is_finite
from harness.measure.state import state
from harness.measure.warm_up import Compilations
from harness.registry import Registry
from reference_impls.mechanism import Unsupported

KERNEL = re.compile(
    r"\w+::_?\w*(attention|cudnn|mkldnn|miopen)\w*|attnbench::\w+|\w+Attention(Backward)?"
)
"""Operators whose name says who does the work: the libraries', our own, our autograd functions."""
UNDECIDED = {"aten::scaled_dot_product_attention", "aten::cudnn_is_acceptable"}
"""Operators that only lead to those."""
_GRADIENT: Callable[[torch.Tensor], torch.Tensor | None] = vars(torch._C.TensorBase)["grad"].__get__
"""Of a tensor as it is, whatever a class of its own makes when it is asked."""
_NO_WORK = (
    *("empty", "new_empty", "_unsafe_view", "_reshape_alias", "lift_fresh", "promote_types"),
)
"""Beginnings of names of operations that compute nothing; views compute nothing either."""


@dataclass
class Prepared:
    """A case that is ready to run.

    Attributes
    ----------
    call : callable
        One pass, of the input that is given (in training also the gradient of the output), else of
        the case's own. For training: forward, backward, gradients of input and weights freshly
        allocated (the old ones are dropped first).
    reset, results : callable
        Drops the gradients of the last pass; the last output, and in training every gradient, by
        name.
    resident_bytes : int
        Weights and input.
    build_seconds : float
        From nothing to a callable, compilation excluded.
    eager : callable
        The same pass, launched operator by operator: `call`, unless that replays a CUDA graph.
    output_kind : {"tokens", "sentence"}
    before : mapping
        The `state` of the process as it was set for the case, before foreign code was imported.
    compile_seconds, warmup_seconds : float
        Of capturing a CUDA graph, the calls before it included.
    graphed : tuple of tensor or None
        What a captured graph reads, whatever the call is given.
    """

    case: Case
    call: Callable[..., None]
    reset: Callable[[], None]
    results: Callable[[], dict[str, torch.Tensor]]
    resident_bytes: int
    build_seconds: float
    eager: Callable[..., None]
    output_kind: str
    before: Mapping[str, object]
    compile_seconds: float = 0.0
    warmup_seconds: float = 0.0
    graphed: Inputs | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether it runs there."""
        return self.case.problem.device == "cpu"

    def finite(self) -> bool:
        """Whether all results of the last pass are."""
        return all(map(is_finite, self.results().values()))

    def drop_graph(self) -> None:
        """Give up a captured graph and its memory; `call` is eager from here on."""
        self.call, self.graphed = self.eager, None
        self.reset()


def prepare(case_id: str, given: Sequence[str] = (), forget: bool = True) -> Prepared:
    """Build module, input and cotangent of a case under its settings.

    Other cases' compiled code is thrown away by `forget`: not while they are still called.

    Raises
    ------
    Unsupported
        If implementation, device and settings don't go together.
    """
    start = perf_counter()
    case = parse(case_id)
    if case.problem.device == "cuda":
        # The process serves many cases: what the last one left must not count for this one.
        gc.collect()
        torch.cuda.empty_cache()
    apply_settings(case, forget)
    before = state(case.problem.device == "cpu")
    mechanism, implementation, module = case_module(case, Registry(given))
    x, mask = case_inputs(case, implementation)
    run: Callable[..., torch.Tensor] = compiled(module, case)
    held: dict[str, torch.Tensor] = {}
    training = case.problem.phase == "training"
    x.requires_grad_(training)
    draw = torch.Generator().manual_seed(2)
    cotangent = torch.randn(case.problem.output_shape(mechanism.output), generator=draw).to(x)
    inputs: Inputs = (x, cotangent) if training else (x,)
    # Made once: what a call of few microseconds has around it must be little.
    parameters, inference = [*module.parameters()], torch.inference_mode()

    def reset() -> None:
        if (last := held.pop("x", None)) is not None:
            last.grad = None
        held.clear()
        for parameter in parameters:
            parameter.grad = None

    def forward(x: torch.Tensor = x) -> None:
        with inference:
            held["output"] = run(x, mask)

    def train(x: torch.Tensor = x, cotangent: torch.Tensor = cotangent) -> None:
        reset()
        held["x"] = x
        output = run(x, mask)
        if not isinstance(output, torch.Tensor):
            raise Unsupported(f"returned a {type(output).__name__}; expected a torch.Tensor")
        output.backward(cotangent)
        held["output"] = output.detach()

    def results() -> dict[str, torch.Tensor]:
        found = {OUTPUT: held["output"]}
        of = [(INPUT, held["x"]), *module.named_parameters()] if training else []
        gradients = {gradient_of(name): _GRADIENT(t) for name, t in of}
        return found | {name: grad for name, grad in gradients.items() if grad is not None}

    tensors = [*inputs, *parameters, *module.buffers()]
    once = train if training else forward
    prepared = Prepared(
        case=case,
        call=once,
        eager=once,
        reset=reset,
        results=results,
        output_kind=mechanism.output,
        before=before,
        resident_bytes=sum(t.numel() * t.element_size() for t in tensors),
        build_seconds=perf_counter() - start,
    )
    if case.run_settings().graphed:
        begun = perf_counter()
        with Compilations() as compilations:
            prepared.call, prepared.graphed = captured(prepared), inputs
        prepared.compile_seconds = compilations.seconds
        prepared.warmup_seconds = perf_counter() - begun - compilations.seconds
    return prepared


def captured(prepared: Prepared) -> Callable[..., None]:
    """Capture one pass in a CUDA graph and return its replay; `Unsupported` where that can't be."""
    warm_for_capture(prepared.call)
    prepared.reset()
    try:
        graph = graph_of(prepared.call)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unsupported(
            f"can't be captured in a CUDA graph: {str(error).splitlines()[0]}"
        ) from error
    return lambda *_: graph.replay()


def dispatched(call: Callable[[], object]) -> list[str]:
    """Names of the kernels a call goes to, forward and backward, sorted.

    As an example ``aten::_scaled_dot_product_flash_attention_for_cpu``; empty for a call that uses
    neither the libraries' kernels nor our own. The call is made once more for this, so it is never
    the timed one.

    Notes
    -----
    Not by `torch.profiler`: in each fresh process it spends seconds on kineto, prints, and on a
    GPU attaches to CUPTI. The older recorder underneath has none of that, and costs a call alone.
    """
    profiler = torch._C._profiler
    config = profiler.ProfilerConfig(
        profiler.ProfilerState.CPU, False, False, False, False, False,
        profiler._ExperimentalConfig(),
    )  # fmt: skip
    torch._C._autograd._enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = torch._C._autograd._disable_profiler_legacy()
    names = {event.name() for events in threads for event in events}
    return sorted(name for name in names if KERNEL.fullmatch(name) and name not in UNDECIDED)


def does_work(func: Any) -> bool:
    """Whether an operator of torch computes anything: it launches a kernel on a GPU."""
    return not (func.is_view or func.name().partition("::")[2].startswith(_NO_WORK))


class _Counter(TorchDispatchMode):
    supports_higher_order_operators = True
    """They come to this mode, which would run them uncompiled, with all scores held, otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            raise NotImplementedError(f"{func.name()} is compiled inside: it can't be counted")
        self.count += does_work(func)
        return func(*args, **(kwargs or {}))


def count_launches(call: Callable[[], object]) -> int:
    """Call once and count the operations that do work, those of the backward pass included.

    An operation may launch several kernels (a recurrent layer does), so this is the least number
    of launches. Compiled code and replayed graphs can't be counted: an operator that is compiled
    inside raises `NotImplementedError` before it has done anything.
    """
    # An attempt to compile under a mode marks the code as one that never is: later calls would run
    # uncompiled, or fail.
    with torch.compiler.set_stance("force_eager"), _Counter() as counter:
        call()
    return counter.count
