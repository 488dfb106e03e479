"""The native kernel against the tensor of scores in float64: values, gradients, flags."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.verify.budget import budget
from harness.verify.budget import error as deviation
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.kernels.native import attend, call, native_backward, native_forward
from reference_impls.masks import parse, parse_all
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa.optimized import algorithm1, least_denominator
from suites.support.kernel_inputs import Problem
from suites.support.kernel_inputs import dense as by_definition
from suites.support.parameters import has_compiler, nightly_but

torch.set_num_threads(1)

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

_NAMES = "none diagonal forward backward forward_inclusive backward_inclusive"
MIXED = (*_NAMES.split(), "window:3", "distance:0.75")
SHORT = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True)
class Case:
    """One problem; its tensors are drawn by `drawn`."""

    n: int
    masks: tuple[str, ...] = MIXED
    batch: int = 2
    d_i: int = 7
    d_v: int = 5
    source: str = "features"  # or "one", "none"
    scale_t: str = "log_sigmoid"
    padding: str = "tail"  # or "none", "holes"
    times: float = 1.0  # on queries and source scores
    keep: float = 1.0

    @property
    def id(self) -> str:
        sizes = f"N{self.n}-B{self.batch}-D{self.d_i}x{self.d_v}-{self.source}-{self.padding}"
        heads = "mixed" if self.masks == MIXED else "+".join(self.masks)
        return f"{sizes}-{heads}-{self.scale_t}-x{self.times:g}-keep{self.keep:g}"


Leaves = dict[str, Tensor]
Attend = Callable[..., Any]


def drawn(case: Case, dtype: torch.dtype) -> tuple[Leaves, Geometry, Tensor | None, Tensor]:
    """q, k, v, s as strided views [H, B, N, d], geometry, mask, and a cotangent."""
    generator = torch.Generator().manual_seed(case.n)
    heads = len(case.masks)
    widths = {"q": case.d_i, "k": case.d_i, "v": case.d_v}
    if case.source != "none":
        widths["s"] = case.d_v if case.source == "features" else 1
    shape = (case.batch, case.n, heads, sum(widths.values()))
    together = torch.randn(shape, generator=generator, dtype=torch.float64)
    parts = together.permute(2, 0, 1, 3).split(list(widths.values()), dim=-1)
    leaves = dict(zip(widths, parts, strict=True))
    for name in ("q", "s"):
        if name in leaves:
            leaves[name] = leaves[name] * case.times
    mask = torch.ones(case.batch, case.n, dtype=torch.bool)
    mask[-1, (2 * case.n + 2) // 3 :] = False
    if case.padding == "holes":
        mask[-1, ::3] = False
        mask[0, 1::5] = False
    geometry = of_masks(parse_all(list(case.masks), heads), case.n, torch.device("cpu"))
    cotangent = torch.randn(heads, case.batch, case.n, case.d_v, generator=generator)
    rounded = {name: strided(t.to(dtype)) for name, t in leaves.items()}
    return rounded, geometry, None if case.padding == "none" else mask, cotangent.to(dtype)


def strided(t: Tensor) -> Tensor:
    """The same numbers [H, B, N, d] as a view of [B, N, H, d + 3]."""
    heads, batch, n, d = t.shape
    room = torch.full((batch, n, heads, d + 3), torch.nan, dtype=t.dtype)
    view = room[..., 1 : 1 + d].permute(2, 0, 1, 3)
    view.copy_(t)
    return view


def dense(*arguments: Any) -> Tensor:
    """Eq. 10-12 with the tensor of scores, in the dtype of q."""
    return by_definition(Problem(*arguments))


def with_gradients(function: Attend, leaves: Leaves, cotangent: Tensor, *rest: Any) -> Leaves:
    """Output and the gradients of all leaves."""
    # Leaves keep their strides.
    own = {name: t.detach().requires_grad_() for name, t in leaves.items()}
    a = function(*(own.get(name) for name in "qkvs"), *rest)
    found = torch.autograd.grad(a, list(own.values()), cotangent)
    return {"a": a.detach()} | {f"d{name}": g for name, g in zip(own, found, strict=True)}


def inputs(leaves: Leaves) -> tuple[Any, Any, Any, Any]:
    """q, k, v, s; None where there is no s."""
    return leaves["q"], leaves["k"], leaves["v"], leaves.get("s")


def native(*arguments: Any) -> Tensor:
    """The result alone, of queries none of which is flagged."""
    a, flagged = attend(*arguments)
    assert not flagged.any()
    return a


def assert_within_budget(case: Case, dtype: torch.dtype) -> None:
    """Twice the error of the tensor of scores in the same dtype, and the rounding floor."""
    leaves, geometry, mask, cotangent = drawn(case, dtype)
    keep = None if case.keep == 1 else PairDropout(12345, case.keep)
    compare(leaves, cotangent, geometry, mask, case.scale_t, keep)


def compare(leaves: Leaves, cotangent: Tensor, *rest: Any) -> None:
    """`assert_within_budget` for what was drawn; rest is geometry, mask, scale_t and dropout."""
    dtype = cotangent.dtype
    exact = {name: t.double() for name, t in leaves.items()}
    wanted = with_gradients(dense, exact, cotangent.double(), *rest)
    plain = with_gradients(dense, leaves, cotangent, *rest)
    got = with_gradients(native, leaves, cotangent, *rest)
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert got[name].dtype == dtype
        numbers = [t[name].double().numpy() for t in (got, plain, wanted)]
        # In float64 the yardstick would be the truth itself.
        yardstick = None if dtype == torch.float64 else deviation(numbers[1], numbers[2])
        allowed = budget(yardstick, SHORT[dtype], gradient=name != "a")
        assert deviation(numbers[0], numbers[2]) <= allowed, name


LENGTHS = [Case(n, scale_t=t) for n in (1, 2, 63, 64, 65, 257) for t in ("log_sigmoid", "identity")]
FEATURES = [
    replace(case, scale_t=scale_t)
    for scale_t in ("log_sigmoid", "identity")
    for case in (
        Case(1000, ("forward", "window:40"), batch=1, padding="none"),
        Case(70, padding="none"),
        Case(70, padding="holes"),
        Case(70, source="one"),
        Case(70, source="one", padding="holes", d_v=17),
        Case(70, source="none", d_v=16),
        Case(70, d_i=0),
        Case(70, d_i=0, source="none"),
        Case(70, d_i=1, d_v=1),
        Case(70, d_i=64, d_v=64, padding="none"),
        Case(70, d_i=75, d_v=75),
        Case(70, d_i=33, d_v=130),
        Case(70, keep=0.8),
        Case(70, keep=0.6, source="one", d_v=75),
        Case(70, keep=0.6, source="none", padding="holes"),
        Case(300, ("window:0", "window:1", "window:8", "window:70"), source="none"),
        Case(300, ("window:0", "window:1", "window:8", "window:70"), keep=0.7, padding="holes"),
        Case(300, ("window:5", "window:40"), batch=1, padding="none", d_i=30, d_v=30),
    )
]


TELLING = [
    Case(65, scale_t="identity"),
    Case(70, padding="holes"),
    Case(70, source="one", padding="holes", d_v=17),
    Case(70, source="none", d_v=16, scale_t="identity"),
    Case(70, keep=0.8),
]
"""What every run tries in other dtypes than float32; the nightly session tries all."""


@pytest.mark.parametrize("case", LENGTHS + FEATURES, ids=lambda case: case.id)
def test_float32(case: Case) -> None:
    assert_within_budget(case, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=SHORT.get)
@pytest.mark.parametrize(
    "case",
    nightly_but(LENGTHS[4:10] + FEATURES[1:], TELLING.__contains__),
    ids=lambda case: case.id,
)
def test_other_dtypes(case: Case, dtype: torch.dtype) -> None:
    assert_within_budget(case, dtype)


@pytest.mark.parametrize(
    "tile",
    nightly_but(
        [(16, 16), (32, 16), (48, 48), (64, 32), (128, 64), (16, 64)],
        {(16, 16), (48, 48), (128, 64)}.__contains__,
    ),
)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_every_size_of_tile(
    tile: tuple[int, int], scale_t: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "tile_rows", tile[0])
    monkeypatch.setattr(call, "tile_panel", tile[1])
    for dtype in (torch.float32, torch.bfloat16):
        assert_within_budget(Case(150, scale_t=scale_t, keep=0.7), dtype)
        assert_within_budget(Case(150, scale_t=scale_t, padding="holes"), dtype)


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_more_threads_than_heads(threads: int, scale_t: str) -> None:
    case = Case(700, ("forward", "window:9"), batch=1, scale_t=scale_t, padding="none")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_within_budget(case, torch.float32)
    finally:
        torch.set_num_threads(before)


def test_without_products_of_bfloat16_it_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call, "_halves", lambda enabled: False)
    assert_within_budget(Case(70), torch.bfloat16)


def test_with_onednn_switched_off() -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        assert_within_budget(Case(70), torch.bfloat16)
        assert_within_budget(Case(70), torch.float32)


def test_ranges_of_every_sample() -> None:
    case = Case(90, ("none", "none", "none"), batch=4, source="none", scale_t="identity")
    leaves, geometry, mask, cotangent = drawn(case, torch.float32)
    reach = torch.tensor([[3, 40, 0, 89], [1, 2, 3, 4], [89, 0, 17, 20]], dtype=torch.int32)
    geometry = replace(geometry, lo=-reach, hi=reach + 2)
    compare(leaves, cotangent, geometry, mask, case.scale_t)


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_it_is_algorithm_1(scale_t: str) -> None:
    # A slope of 0.7 has to be that of float64.
    case = Case(65, (*MIXED[:-1], "distance:0.7"))
    leaves, geometry, mask, _ = drawn(case, torch.float64)
    masks = tuple(map(parse, case.masks))
    a, _ = attend(*inputs(leaves), geometry, mask, scale_t)
    assert mask is not None
    wanted = algorithm1(*inputs(leaves), masks, scale_t, mask).masked_fill(~mask[..., None], 0)
    torch.testing.assert_close(a, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("times", [1.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_flagged_queries_and_nothing_else_are_lost(scale_t: str, times: float) -> None:
    case = Case(128, times=times, scale_t=scale_t, d_i=8, d_v=8)
    leaves, geometry, mask, cotangent = drawn(case, torch.float32)
    own = {name: t.detach().requires_grad_() for name, t in leaves.items()}
    a, flagged = attend(*inputs(own), geometry, mask, scale_t)
    exact = {name: t.double().requires_grad_() for name, t in leaves.items()}
    wanted = dense(*inputs(exact), geometry, mask, scale_t)
    got, right = (t[~flagged].detach().double().numpy() for t in (a, wanted))
    assert deviation(got, right) <= 2e-5
    assert not a[flagged].any()
    if times == 1:
        assert not flagged.any()
    if times == 100:
        assert 0 < flagged.float().mean() < 0.9
    # No gradient flows to flagged queries, so that of the others must be all there is.
    others = cotangent.masked_fill(flagged[..., None], 0)
    found = torch.autograd.grad(a, list(own.values()), cotangent)
    expected = torch.autograd.grad(wanted, list(exact.values()), others.double())
    plain_own = {name: t.detach().requires_grad_() for name, t in leaves.items()}
    plain = dense(*inputs(plain_own), geometry, mask, scale_t)
    yardstick = torch.autograd.grad(plain, list(plain_own.values()), others)
    for name, g, p, w in zip(own, found, yardstick, expected, strict=True):
        allowed = budget(deviation(p.double().numpy(), w.numpy()), "f32", gradient=True)
        assert deviation(g.double().numpy(), w.numpy()) <= allowed, name


def test_flags_are_those_of_the_denominator() -> None:
    # Query i of a strict forward head sees s = 0 where the maximum, seen by the last alone, is x.
    def flags(x: float) -> list[bool]:
        s = torch.zeros(1, 1, 4, 2)
        s[0, 0, 2, 1] = x
        v, q = torch.ones(1, 1, 4, 2), torch.zeros(1, 1, 4, 3)
        geometry = of_masks((parse("forward"),), 4, torch.device("cpu"))
        a, flagged = attend(q, q, v, s, geometry, None, "identity")
        assert (a[0, 0, 1:][~flagged[0, 0, 1:]] - 1).abs().max() < 1e-6
        return flagged[0, 0].tolist()

    least = torch.tensor(least_denominator(torch.float32, 4)).log().neg().item()
    assert flags(least - 1) == [False] * 4
    assert flags(least + 1) == [False, True, True, False]


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_gradients_at_scores_of_a_thousand(scale_t: str) -> None:
    case = Case(70, ("none", "diagonal", "window:30"), scale_t=scale_t)
    for dtype in (torch.float64, torch.float32):
        leaves, geometry, mask, cotangent = drawn(case, dtype)
        leaves["q"] = 500 * leaves["q"]
        compare(leaves, cotangent, geometry, mask, scale_t)


ONE_KEY = [
    Case(2, ("forward", "backward", "diagonal"), padding="none"),
    Case(3, ("forward", "backward", "diagonal")),
    Case(70, ("window:0",), padding="holes"),
]


@pytest.mark.parametrize(
    "dtype",
    nightly_but([torch.float64, torch.float32, torch.bfloat16], torch.float32.__eq__),
    ids=SHORT.get,
)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("keep", [1.0, 0.5])
@pytest.mark.parametrize("source", ["features", "one", "none"])
@pytest.mark.parametrize("case", ONE_KEY, ids=lambda case: case.id)
def test_all_that_flows_back_from_a_query_with_one_key_goes_to_its_value(
    case: Case, source: str, keep: float, scale_t: str, dtype: torch.dtype
) -> None:
    leaves, geometry, mask, cotangent = drawn(replace(case, source=source), dtype)
    some = geometry.open_keys(case.n, mask) == 1  # [H, B or 1, N]
    if mask is not None:
        some = some & mask
    assert some.any()
    cotangent = cotangent.masked_fill(~some[..., None], 0)
    rest = (geometry, mask, scale_t, PairDropout(5, keep) if keep < 1 else None)
    got = with_gradients(native, leaves, cotangent, *rest)
    exact = {name: t.double() for name, t in leaves.items()}
    wanted = with_gradients(dense, exact, cotangent.double(), *rest)
    for name in got.keys() - {"a", "dv"}:
        assert not got[name].any(), name
    assert wanted["dv"].any()
    torch.testing.assert_close(got["dv"], wanted["dv"].to(dtype))


def test_content_of_padding_does_not_matter() -> None:
    leaves, geometry, mask, cotangent = drawn(Case(70, padding="holes"), torch.float32)
    assert mask is not None
    rest = (geometry, mask, "identity")
    wanted = with_gradients(native, leaves, cotangent, *rest)
    spoiled = {name: t.masked_fill(~mask[..., None], torch.nan) for name, t in leaves.items()}
    bad_cotangent = cotangent.masked_fill(~mask[..., None], torch.inf)
    got = with_gradients(native, spoiled, bad_cotangent, *rest)
    for name in wanted:
        assert torch.equal(got[name], wanted[name]), name
        assert not got[name].masked_select(~mask[..., None]).any(), name


def test_nothing_is_real() -> None:
    leaves, geometry, _, cotangent = drawn(Case(5), torch.float32)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    found = with_gradients(native, leaves, cotangent, geometry, mask, "identity")
    assert not any(t.any() for t in found.values())


def test_not_a_number_is_not_hidden() -> None:
    leaves, geometry, _, _ = drawn(Case(40, ("none",), padding="none"), torch.float32)
    for name in "qkvs":
        bad = dict(leaves)
        bad[name] = leaves[name].clone()
        bad[name][0, 0, 7, 0] = torch.nan
        for scale_t in ("log_sigmoid", "identity"):
            assert attend(*inputs(bad), geometry, None, scale_t)[0].isnan().any(), name


def test_the_gradient_of_what_is_alike_for_all_keys_is_zero() -> None:
    leaves, geometry, mask, cotangent = drawn(Case(257, d_v=16), torch.float32)
    found = with_gradients(native, leaves, cotangent * 30, geometry, mask, "log_sigmoid")
    assert found["ds"].abs().max() > 1
    assert found["ds"].double().sum(2).abs().max() < 2e-5


def test_the_same_call_gives_the_same_bits() -> None:
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            for dtype in (torch.float32, torch.bfloat16):
                case = Case(520, ("forward", "none"), batch=1, keep=0.9)
                leaves, geometry, mask, cotangent = drawn(case, dtype)
                keep = PairDropout(7, 0.9)
                rest = (geometry, mask, "log_sigmoid", keep)
                first = with_gradients(native, leaves, cotangent, *rest)
                again = with_gradients(native, leaves, cotangent, *rest)
                assert all(torch.equal(first[name], again[name]) for name in first)
        finally:
            torch.set_num_threads(1)


def test_the_result_lies_as_the_layer_wants_it() -> None:
    leaves, geometry, mask, _ = drawn(Case(9), torch.float32)
    a, _ = attend(*inputs(leaves), geometry, mask, "log_sigmoid")
    assert a.permute(1, 2, 0, 3).is_contiguous()


def test_mixed_dtypes_give_that_of_the_queries() -> None:
    leaves, geometry, mask, _ = drawn(Case(65), torch.float32)
    wanted = dense(
        *inputs({n: t.double() for n, t in leaves.items()}), geometry, mask, "log_sigmoid"
    )
    mixed = {n: t.bfloat16() if n in "qk" else t for n, t in leaves.items()}
    a, _ = attend(*inputs(mixed), geometry, mask, "log_sigmoid")
    assert a.dtype == torch.bfloat16
    assert deviation(a.double().numpy(), wanted.numpy()) < 2e-2


def arguments(dtype: torch.dtype = torch.float32, **changes: Any) -> list[Any]:
    """Of `native_forward`, with leaves that need gradients."""
    leaves, geometry, mask, _ = drawn(Case(20, ("forward", "window:2"), **changes), dtype)
    own = [leaves[n].detach().requires_grad_() if n in leaves else None for n in "qkvs"]
    ranges = (geometry.lo, geometry.hi, geometry.without_self, geometry.slope)
    return [*own, *ranges, mask, "identity", 3, 2**31, True]


@pytest.mark.parametrize("changes", [{}, {"source": "none", "padding": "none"}, {"source": "one"}])
def test_torch_finds_the_operators_in_order(changes: dict[str, Any]) -> None:
    given = arguments(**changes)
    torch.library.opcheck(native_forward, tuple(given))
    with torch.no_grad():
        a, _, inverse, highest = native_forward(*given)
        rest = [t.detach() if isinstance(t, Tensor) else t for t in given[:-1]]
        torch.library.opcheck(native_backward, (torch.ones_like(a), a, inverse, highest, *rest))


def test_gradients_are_those_of_the_function() -> None:
    given = arguments(torch.float64)

    def function(*tensors: Tensor) -> Tensor:
        return native_forward(*tensors, *given[4:])[0]

    assert torch.autograd.gradcheck(function, tuple(given[:4]))


def test_gradients_of_gradients_are_refused() -> None:
    given = arguments(torch.float64)
    a = native_forward(*given)[0]
    (g,) = torch.autograd.grad(a.sum(), given[0], create_graph=True)
    with pytest.raises(Unsupported, match="no second derivative; use algorithm1") as it:
        torch.autograd.grad(g.sum(), given[0])
    assert "\n" not in str(it.value)


def test_gradients_that_were_not_prepared_are_refused() -> None:
    given = arguments()
    a = native_forward(*given[:-1], False)[0]
    with pytest.raises(RuntimeError, match="save=True"):
        a.sum().backward()


@pytest.mark.slow
def test_compiled_without_a_break() -> None:
    leaves, geometry, mask, cotangent = drawn(Case(65), torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(lambda *t: 2 * attend(*t)[0], fullgraph=True)
    rest = (geometry, mask, "log_sigmoid")
    wanted = with_gradients(lambda *t: 2 * attend(*t)[0], leaves, cotangent, *rest)
    got = with_gradients(compiled, leaves, cotangent, *rest)
    torch.compiler.reset()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name])


def test_autocast_changes_nothing() -> None:
    leaves, geometry, mask, cotangent = drawn(Case(65), torch.float32)
    rest = (geometry, mask, "identity")
    wanted = with_gradients(native, leaves, cotangent, *rest)
    with torch.autocast("cpu", torch.bfloat16):
        got = with_gradients(native, leaves, cotangent, *rest)
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)


def test_what_it_does_not_do_it_says() -> None:
    leaves, geometry, mask, _ = drawn(Case(5), torch.float32)
    whole = {name: t.to(torch.int32) for name, t in leaves.items()}
    with pytest.raises(Unsupported, match=r"q is torch.int32"):
        attend(*inputs(whole), geometry, mask, "identity")
    elsewhere = {name: t.to("meta") for name, t in leaves.items()}
    with pytest.raises(Unsupported, match="on the CPU, q is on meta"):
        attend(*inputs(elsewhere), geometry, mask, "identity")


MEMORY = """
import sys, torch
from harness.isolate import processes
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.native import attend
from reference_impls.masks import parse_all
torch.set_num_threads(1)
n, heads, d = int(sys.argv[1]), 2, 32
leaves = [torch.randn(1, n, heads, d).permute(2, 0, 1, 3).requires_grad_() for _ in range(4)]
geometry = of_masks(parse_all(None, heads), n, torch.device("cpu"))
def call():
    a, _ = attend(*leaves, geometry, None, sys.argv[2])
    a.backward(a.detach())
    for leaf in leaves:
        leaf.grad = None
call()
before = processes.reset_peak()
call()
print(processes.peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is the Linux kernel's")
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_memory_is_linear(scale_t: str) -> None:
    def peak(n: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(n), scale_t],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"},
        )
        return int(done.stdout)

    n, tensor = 8192, 8192 * 2 * 32 * 4
    small, large = peak(n // 4), peak(n)
    assert 3 < large / small < 5
    # Gradients, the result and its denominators: 6 tensors; the operands of one head, both ways.
    assert large < 12 * tensor
