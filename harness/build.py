"""Modules and inputs for a case, the same for verifying and for measuring. Runs in children."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from harness.case import DTYPES, Case, literal, parse
from harness.errors import UsageError
from harness.registry import Registry, names_heads, resolve
from reference_impls.mechanism import Implementation, Mechanism, Unsupported


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a short name such as ``bf16``."""
    return getattr(torch, DTYPES[name])


def make(
    mechanism: Mechanism,
    factory: str,
    d_in: int,
    d_out: int,
    heads: int,
    options: Mapping[str, Any],
    seed: int = 0,
) -> torch.nn.Module:
    """Build a module with seeded weights in float32 on the CPU.

    ``heads`` is passed to mechanisms that take it, and to a factory of others that names it.

    Raises
    ------
    UsageError
        If the factory does not return a `torch.nn.Module`.
    """
    call = resolve(factory)
    arguments = dict(options)
    takes = names_heads(call) if mechanism.takes_heads is None else mechanism.takes_heads
    if heads and takes:
        arguments.setdefault("heads", heads)
    # By torch.manual_seed it would be noted for every kind of device that is not there, each time
    # with the stack of the call: half the time of checking a small batch.
    torch.default_generator.manual_seed(seed)
    if torch.backends.cuda.is_built():  # which starts no driver; noted for when one is started
        torch.cuda.manual_seed_all(seed)
    module = call(d_in, d_out, **arguments)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{factory} returned a {type(module).__name__}; expected a torch.nn.Module"
        )
    return module


def cores_available() -> list[int] | None:
    """Numbers of the cores that this process may use; None where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def threads_available() -> int:
    """CPU threads that this process may use (its affinity, not the machine's size)."""
    return len(cores_available() or ()) or os.cpu_count() or 1


def set_tf32(allowed: bool) -> None:
    """Say whether float32 products may be TF32; torch's own default allows it for cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def threads_wanted(case: Case) -> int:
    """CPU threads that the settings of a case ask for."""
    return case.run_settings().threads or threads_available()


def apply_settings(case: Case, forget: bool = True) -> None:
    """Set threads and TF32 of this process as the case wants them.

    If it is to be compiled other compiled code is thrown away by `forget`.
    """
    settings = case.run_settings()
    if case.problem.device == "cpu":
        torch.set_num_threads(threads_wanted(case))
    set_tf32(settings.tf32)
    if settings.compile_mode:
        if forget:
            # A process may serve many cases, and dynamo gives up on a function after a few shapes.
            torch.compiler.reset()
        # When it gives up it goes on eager, without a word that a record could hold.
        torch._dynamo.config.fail_on_recompile_limit_hit = True


def compiled(module: torch.nn.Module, case: Case) -> Any:
    """The module under the case's compile mode, shapes fixed; itself where there is none."""
    mode = case.run_settings().compile_mode
    return torch.compile(module, mode=mode, dynamic=False) if mode else module


def case_module(
    case: Case, registry: Registry, seed: int = 0
) -> tuple[Mechanism, Implementation, torch.nn.Module]:
    """Build the module of a case in its dtype on its device.

    Raises
    ------
    Unsupported
        If the implementation can't run on the device, or a setting means nothing there.
    """
    mechanism, implementation = registry.find(f"{case.mechanism}.{case.implementation}")
    p = case.problem
    if p.device not in implementation.devices:
        raise Unsupported(f"{case.name} does not run on {p.device}")
    if p.device not in case.run_settings().devices:
        raise Unsupported(f"setting {'+'.join(case.settings)} means nothing on {p.device}")
    if case.run_settings().tf32 and p.dtype != "f32":
        raise Unsupported(f"setting tf32 means nothing for {p.dtype}")
    if case.run_settings().padded and p.batch < 2:
        raise Unsupported("setting padded means nothing for a batch of one")
    module = build_case(case, registry, seed).to(device=p.device, dtype=torch_dtype(p.dtype))
    return mechanism, implementation, module.train(p.phase == "training")


def build_case(case: Case, registry: Registry, seed: int = 0) -> torch.nn.Module:
    """Build the module of a case with its options, in float32 on the CPU."""
    mechanism, implementation = registry.find(f"{case.mechanism}.{case.implementation}")
    options = {**mechanism.options, **implementation.options}
    options |= {key: literal(value) for key, value in case.options}
    p = case.problem
    return make(mechanism, implementation.factory, p.d_in, p.d_out, p.heads, options, seed)


def try_options(case: str, given: Sequence[str] = ()) -> None:
    """Build a case's module, whatever it is to run on, to see whether it can be. A task."""
    build_case(parse(case), Registry(given))


def case_inputs(
    case: Case, implementation: Implementation, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Standard-normal input ``[B, N, d_in]`` and its mask.

    Under the setting ``padded`` the samples have lengths that grow evenly from N/2 to N; else
    there is no padding, and the mask is None where the implementation allows it.
    """
    p = case.problem
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(p.batch, p.length, p.d_in, generator=generator)
    x = x.to(device=p.device, dtype=torch_dtype(p.dtype))
    if case.run_settings().padded:
        lengths = torch.linspace(p.length / 2, p.length, p.batch, dtype=torch.float64).ceil()
        return x, (torch.arange(p.length) < lengths[:, None]).to(p.device)
    if implementation.mask_optional:
        return x, None
    return x, torch.ones(p.batch, p.length, dtype=torch.bool, device=p.device)


def warm_for_capture(call: Callable[[], object]) -> None:
    """Make a call beside the current stream, as capturing asks for: what is chosen once, is."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(beside)


def graph_of(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Capture a warm call in a CUDA graph; `RuntimeError` if it can't be."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
