"""The door to the backends: its choice, its refusals, its repair of queries that underflow."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.measure.run import dispatched
from reference_impls.kernels import core, tiled, underflow
from reference_impls.kernels.caching import constant
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.underflow import repaired
from reference_impls.masks import parse_all
from reference_impls.mechanism import BadOption, Unsupported
from suites.support.batches import error
from suites.support.kernel_inputs import Problem, dense, gradients, problem, random_geometry

torch.set_num_threads(1)


def outshone(length: int = 12, dropout: float = 0.0, **options: Any) -> Problem:
    """float32; one key outshines the others by exp(300), and most queries do not see it."""
    geometry = of_masks(parse_all(["forward", "window:2"], 2), length, torch.device("cpu"))
    options = {"lengths": (length, length - 3), **options}
    p = problem(2, 2, length, geometry=geometry, dropout=dropout, **options).to(torch.float32)
    assert p.s is not None
    with torch.no_grad():
        p.s[:, :, 5] = 300
    return p


class Largest(TorchDispatchMode):
    """Bytes of the largest memory behind any tensor that is made."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, torch.Tensor):
                self.found = max(self.found, made.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_queries_computed_again_hold_nothing_of_all_their_pairs(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget, n = 2**16, 600
    monkeypatch.setattr(underflow, "CHUNK_BYTES", budget)
    geometry = of_masks(parse_all(["forward"], 1), n, torch.device("cpu"))
    p = problem(1, 1, n, d_i=2, d_v=2, columns=2, geometry=geometry, dropout=dropout).to(
        torch.float32
    )
    with Largest() as watch:
        a = underflow.recomputed(torch.arange(n), *p.arguments())
        a.sum().backward()
    assert watch.found <= budget < n * n  # not even a byte for each pair


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [1, 64 * 2**20])
def test_underflowing_queries_are_computed_again(
    scale_t: str, dropout: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(underflow, "CHUNK_BYTES", chunk)
    p = outshone(dropout=dropout, scale_t=scale_t)
    _, flagged = tiled.attend(*p.arguments())
    assert 0 < flagged.sum() < flagged.numel() / 2
    a = core.attend(*p.arguments(), backend="tiled")
    double = p.to(torch.float64)
    wanted = dense(double)
    assert a.permute(1, 2, 0, 3).is_contiguous()
    assert error(a, wanted) < 2e-5
    for name, got, want in zip(
        "qkvs", gradients(a, p.tensors), gradients(wanted, double.tensors), strict=True
    ):
        assert error(got, want) < 2e-5, name


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("d_i", [0, 5])
def test_every_query_alone_is_the_definition(d_i: int, columns: int | None, scale_t: str) -> None:
    torch.manual_seed(0)
    geometry = random_geometry(3, 2, 9, sloped=True)
    p = problem(3, 2, 9, d_i, 7, columns, geometry, (9, 6), scale_t, dropout=0.3)
    wanted = dense(p)
    where = (wanted != 0).any(-1).flatten().nonzero().squeeze(1)
    assert where.numel() > 20
    found = underflow.recomputed(where, *p.arguments())
    assert error(found, wanted.flatten(0, 2)[where]) < 1e-13
    loss, of_wanted = found.sin().sum(), wanted.flatten(0, 2)[where].sin().sum()
    for got, want in zip(
        torch.autograd.grad(loss, p.tensors), torch.autograd.grad(of_wanted, p.tensors), strict=True
    ):
        assert not got.numel() or error(got, want) < 1e-13


def test_nothing_is_computed_again_that_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underflow, "recomputed", None)
    p = problem(2, 2, 12, lengths=(12, 9)).to(torch.float32)
    assert core.attend(*p.arguments(), backend="tiled").isfinite().all()


def repair_arguments(p: Problem, flagged: torch.Tensor) -> tuple[Any, ...]:
    """Of the operator: what a backend left at the flagged queries is nothing like a result."""
    a = torch.full((*p.v.shape[1:3], p.v.shape[0], p.v.shape[3]), 9.0, dtype=p.v.dtype)
    a, g = a.permute(2, 0, 1, 3).requires_grad_(), p.geometry
    ranges = g.lo, g.hi, g.without_self, g.slope
    seeded = (0, -1.0) if p.dropout is None else (p.dropout.seed, p.dropout.probability)
    return (a, flagged, p.q, p.k, p.v, p.s, *ranges, p.mask, p.scale_t, *seeded)


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("d_i", [0, 5])
@pytest.mark.parametrize("chunk", [1, 64 * 2**20])
def test_the_operator_of_compiled_calls_is_the_definition(
    d_i: int, columns: int | None, scale_t: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(underflow, "CHUNK_BYTES", chunk)
    torch.manual_seed(0)
    geometry = random_geometry(3, 2, 9, sloped=True)
    dropout = 0.3 * (chunk == 1)
    p = problem(3, 2, 9, d_i, 7, columns, geometry, (9, 6), scale_t, dropout=dropout)
    wanted = dense(p)
    flagged = (wanted != 0).any(-1) & (torch.rand(3, 2, 9) < 0.6)
    assert flagged.sum() > 10
    arguments = repair_arguments(p, flagged)
    a = repaired(*arguments)
    assert a.permute(1, 2, 0, 3).is_contiguous()
    assert bool((a[~flagged] == 9).all())
    assert error(a[flagged], wanted[flagged]) < 1e-13
    found = torch.autograd.grad(a.sin().sum(), [arguments[0], *p.tensors])
    left = torch.full_like(a, math.cos(9.0)).masked_fill(flagged[..., None], 0)
    assert error(found[0], left) < 1e-15
    of_wanted = torch.autograd.grad(wanted[flagged].sin().sum(), p.tensors)
    for name, got, want in zip("qkvs", found[1:], of_wanted, strict=False):
        assert not got.numel() or error(got, want) < 1e-13, name


@pytest.mark.parametrize("name", ["native", "tiled", "operator"])
def test_computed_again_gives_the_same_bits_on_two_threads(name: str) -> None:
    if name == "native" and not core.available(name):
        pytest.skip("no compiler here")
    torch.manual_seed(0)
    geometry = of_masks(parse_all(["forward", "backward"], 2), 96, torch.device("cpu"))
    p = problem(2, 2, 96, 48, 48, 48, geometry, (96, 96)).to(torch.float32)
    assert p.s is not None
    with torch.no_grad():
        p.s.mul_(100)
    _, flagged = tiled.attend(*p.arguments())
    assert flagged.sum() > 100, "many queries of the same sequences"
    g = torch.randn(p.v.shape)

    def once() -> list[torch.Tensor]:
        if name == "operator":
            a = repaired(*repair_arguments(p, flagged))
        else:
            a = core.attend(*p.arguments(), backend=name)
        return [a.detach(), *torch.autograd.grad(a, p.tensors, g)]

    torch.set_num_threads(2)
    try:
        first = once()
        for _ in range(6):
            assert all(map(torch.equal, once(), first))
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
def test_many_queries_of_a_sequence_are_added_in_one_order_on_cuda() -> None:
    torch.manual_seed(0)
    head, sample = torch.arange(4096, device="cuda") // 2048, torch.zeros(4096, device="cuda").int()
    own = underflow.SequencesOfQueries((head, sample), 1)
    values = torch.randn(4096, 16, 8, device="cuda")
    wanted = values.double().unflatten(0, (2, 2048)).sum(1)[:, None]
    found = []
    for _ in range(6):
        given = torch.zeros(2, 1, 16, 8, device="cuda", requires_grad=True)
        (own.of(given) * values).sum().backward()
        added = torch.zeros(2, 1, 16, 8, device="cuda")
        own.add(added, values)
        assert given.grad is not None
        found.append(torch.stack([given.grad, added]))
    assert error(found[0].double(), wanted.expand_as(found[0])) < 1e-5
    assert all(torch.equal(one, found[0]) for one in found)


def test_the_operator_passes_torchs_own_check() -> None:
    p = problem(2, 2, 6, scale_t="identity", lengths=(6, 4))
    flagged = torch.zeros(2, 2, 6, dtype=torch.bool)
    for flags in (flagged, flagged.index_fill(2, torch.tensor([1]), True)):
        arguments = repair_arguments(p, flags)
        torch.library.opcheck(torch.ops.attnbench.repaired.default, arguments)
        same = torch.ones(arguments[0].shape, dtype=torch.float64)
        given = (same, *(t.detach() if isinstance(t, torch.Tensor) else t for t in arguments[1:]))
        torch.library.opcheck(torch.ops.attnbench.repaired_backward.default, given)


@pytest.mark.parametrize("name", ["native", "tiled"])
def test_the_backend_that_ran_is_known_and_recorded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not core.available(name):
        pytest.skip(f"{name} can't be had here")
    p = problem(2, 2, 12).to(torch.float32)

    def once() -> None:
        core.attend(*p.arguments(), backend=name).sum().backward()

    names = dispatched(once)
    assert core.ran() == name
    assert names
    assert any(
        n.startswith({"native": "attnbench::", "tiled": "TiledAttention"}[name]) for n in names
    )
    with torch.inference_mode():
        assert dispatched(lambda: core.attend(*p.arguments(), backend=name))


def test_several_dtypes_meet_in_the_widest() -> None:
    p = problem(2, 2, 12)
    assert p.s is not None
    mixed = (p.q.bfloat16(), p.k.bfloat16(), p.v.float(), p.s.bfloat16(), *p.arguments()[4:])
    same = (p.q.bfloat16().float(), p.k.bfloat16().float(), p.v.float(), p.s.bfloat16().float())
    a = core.attend(*mixed, backend="tiled")
    assert a.dtype == torch.bfloat16
    wanted = core.attend(*same, *p.arguments()[4:], backend="tiled")
    assert torch.equal(a, wanted.bfloat16())


def test_autocast_is_left_outside() -> None:
    p = problem(2, 2, 12).to(torch.float32)
    wanted = core.attend(*p.arguments(), backend="tiled")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = core.attend(*p.arguments(), backend="tiled")
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(a, wanted)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BadOption, match="backend='fast'; expected 'auto' or 'native' or 'tiled'"):
        core.attend(*problem(2, 1, 3).arguments(), backend="fast")


def test_what_is_not_installed_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MODULES", {"triton": "reference_impls.kernels.no_such_backend"})
    monkeypatch.setattr(core, "_loaded", {})
    with pytest.raises(Unsupported, match=r"backend triton needs .*no_such_backend") as caught:
        core.attend(*problem(2, 1, 3).arguments(), backend="triton")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["triton", "flex"])
def test_a_backend_of_another_device_is_refused_in_one_line(backend: str) -> None:
    with pytest.raises(Unsupported, match=backend) as caught:
        core.attend(*problem(2, 1, 3).arguments(), backend=backend)
    assert "\n" not in str(caught.value)


ALL = ("native", "flex", "triton")


@pytest.mark.parametrize(
    ("there", "device", "dtype", "options", "wanted"),
    [
        ((), "cuda", torch.bfloat16, {}, "tiled"),
        ((), "cpu", torch.bfloat16, {}, "tiled"),
        (("native",), "cpu", torch.bfloat16, {}, "native"),
        (("native",), "cpu", torch.float64, {}, "native"),
        (("native",), "cpu", torch.int32, {}, "tiled"),
        (ALL, "mps", torch.bfloat16, {}, "tiled"),
        (ALL, "cuda", torch.bfloat16, {}, "triton"),
        (ALL, "cuda", torch.float64, {}, "tiled"),
        (ALL, "cuda", torch.bfloat16, {"width": 256}, "triton"),
        (ALL, "cuda", torch.bfloat16, {"width": 300}, "tiled"),  # Table 1's own: two heads of 300
        (("native", "flex"), "cuda", torch.bfloat16, {}, "flex"),
        (("native", "flex"), "cuda", torch.bfloat16, {"dropping": True}, "tiled"),
        (("native", "flex"), "cuda", torch.bfloat16, {"width": 128}, "flex"),
        (("native", "flex"), "cuda", torch.bfloat16, {"width": 129}, "tiled"),
    ],
)
def test_auto_takes_what_there_is(
    there: tuple[str, ...],
    device: str,
    dtype: torch.dtype,
    options: dict[str, Any],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "available", lambda name: name in there)
    monkeypatch.setattr("reference_impls.kernels.triton.device.large_tiles", lambda *_: True)
    assert core.choose(device, dtype, **options) == wanted


def test_auto_knows_what_a_device_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "available", lambda name: True)
    monkeypatch.setattr("reference_impls.kernels.triton.device.large_tiles", lambda *_: False)
    assert core.choose("cuda", torch.float32, width=128) == "triton"
    assert core.choose("cuda", torch.float32, width=129) == "tiled"
    assert core.choose("cuda", torch.bfloat16, width=256) == "triton"


def test_auto_is_told_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def chosen(*arguments: Any) -> str:
        seen.append(arguments[-1])
        return "tiled"

    monkeypatch.setattr(core, "choose", chosen)
    core.attend(*problem(2, 1, 4, d_i=5, d_v=7).arguments())
    core.attend(*problem(2, 1, 4, d_i=9, d_v=7).arguments())
    assert seen == [7, 9]


def test_compiled_the_choice_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = of_masks(parse_all(["forward", "window:2"], 2), 12, torch.device("cpu"))
    torch._dynamo.reset()
    compiled: Any = torch.compile(core.attend, fullgraph=True, backend="aot_eager")
    p = problem(2, 2, 12, geometry=geometry).to(torch.float32)
    monkeypatch.setattr(core, "available", lambda name: False)
    a, wanted = compiled(*p.arguments()), core.attend(*p.arguments())
    assert core.ran() == "tiled"
    assert error(a, wanted) < 1e-6


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("backend", ["native", "tiled"])
def test_compiled_underflowing_queries_are_computed_again(
    backend: str, dropout: float, scale_t: str
) -> None:
    if not core.available(backend):
        pytest.skip(f"{backend} can't be had here")
    p = outshone(dropout=dropout, scale_t=scale_t)
    assert bool(tiled.attend(*p.arguments())[1].any())
    torch._dynamo.reset()
    compiled: Any = torch.compile(core.attend, fullgraph=True, backend="aot_eager")
    a = compiled(*p.arguments(), backend=backend)
    double = p.to(torch.float64)
    wanted = dense(double)
    assert error(a, wanted) < 2e-5
    for name, got, want in zip(
        "qkvs", gradients(a, p.tensors), gradients(wanted, double.tensors), strict=True
    ):
        assert error(got, want) < 2e-5, name


def test_the_mark_for_the_compiler_is_torchs_own_and_costs_no_import() -> None:
    def ours() -> int:
        return 1

    def theirs() -> int:
        return 1

    assert vars(constant(ours)) == vars(torch.compiler.assume_constant_result(theirs))
    code = (
        "import sys, reference_impls.mtsa.fused, reference_impls.msmsa.fused; "
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
