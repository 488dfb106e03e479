"""Weights put together once, and again as soon as one of them is another."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.verify.margin import check_case
from reference_impls import merged
from reference_impls.merged import MergingModule
from suites.support.batches import (
    FAST,
    WITH_VARIANTS,
    assert_same,
    batch,
    build,
    error,
    fresh,
    module_of,
    run,
)

MERGING = [n for n in FAST if any(isinstance(m, MergingModule) for m in module_of(n).modules())]
ONCE = [
    "multi_head.sdpa",
    "multi_head.matmul",
    "multi_head_relu.sdpa",
    "msmsa.masked",
    "msmsa.windowed",
    "transformer.sdpa",
    "multi_scale_transformer.windowed",
    "disa.chunked",
    "disa.broadcast",
    "resa.gathered",
]
FUSED = [(name, label) for name, label in WITH_VARIANTS if name.endswith(".fused_tiled")]


class Copies(TorchDispatchMode):
    """Counts how often weights are put side by side: what is made of weights alone."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.held = list(weights)  # no address is given away twice
        self.known = {w.untyped_storage().data_ptr() for w in weights}
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
        if parts and all(t.untyped_storage().data_ptr() in self.known for t in parts):
            self.count += func is torch.ops.aten.cat.default
            made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
            self.held += made
            self.known |= {t.untyped_storage().data_ptr() for t in made}
        return result


def copies(module: nn.Module, x: Tensor, mask: Tensor | None = None) -> int:
    """How often a call without gradients puts weights together."""
    with torch.inference_mode(), Copies([w.detach() for w in module.parameters()]) as counter:
        module(x, mask)
    return counter.count


@pytest.mark.parametrize(("name", "variant"), [*((name, "default") for name in ONCE), *FUSED])
def test_evaluation_puts_weights_together_once(name: str, variant: str) -> None:
    module = build(name, variant).eval()
    x, mask = batch((7, 4))
    assert copies(module, x, mask) > 0 or variant != "default"
    assert copies(module, x, mask) == 0
    assert copies(module, x) == 0
    module.train()
    first = copies(module, x)
    assert first > 0 or variant != "default"
    assert copies(module, x) == first


SHORT = ["multi_head.sdpa", "mtsa.fused", "disa.fused"]


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("tokens", [4, 17])  # of two samples each; weights have 32 rows and more
def test_of_few_tokens_each_weight_is_multiplied_by_itself(
    name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the oracle's values and gradients, and without a pass over the weights."""
    asked, made = merged.few, []

    def few(x: Tensor) -> bool:
        made.append(asked(x))
        return made[-1]

    for place in ("reference_impls.merged", "reference_impls.mtsa.projection"):
        monkeypatch.setattr(f"{place}.few", few)
    heads = "" if name.startswith("disa") else "-H4"
    found = check_case(f"{name}-B2-N{tokens}-D64{heads}-f32-training-cpu+1-thread")
    assert found["verdict"] == "ok", found
    assert any(made) == (tokens == 4)


def test_what_is_few_depends_on_the_weights_and_where_they_are() -> None:
    x = torch.zeros(2, 4, 32)
    assert merged.few(x)
    assert not merged.few(torch.zeros(3, 3, 32))
    assert not merged.few(x.bfloat16())
    assert not merged.few(x.to("meta"))


def test_weights_that_were_converted_are_not_held_any_longer() -> None:
    module: Any = build("multi_head.sdpa").eval()
    x, mask = batch((7, 4))
    with torch.inference_mode():
        module(x, mask)
    kept = [one.made for one in module.merged._kept.values()]
    made = [weakref.ref(part) for part in tree_leaves(kept) if isinstance(part, Tensor)]
    del kept
    assert made
    module.bfloat16()
    gc.collect()
    assert not any(part() is not None for part in made)


def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "MOST_KEPT", 3)
    kept = merged.Merged(keeping=True)
    weight = nn.Parameter(torch.zeros(2, 2))
    with torch.no_grad():
        counts = []
        for number in range(7):
            kept.of(torch.clone, weight, key=number)
            counts.append(len(kept._kept))
    assert counts == [1, 2, 3, 1, 2, 3, 1]


def test_kept_columns_begin_where_a_product_is_fast() -> None:
    kept = merged.Merged(keeping=True)
    x, weight = torch.randn(3, 4), nn.Parameter(torch.randn(4, 13))
    with torch.no_grad():
        found = kept.product(x, merged.itself, weight)
        assert error(found, x @ weight) < 1e-6
    ((made, _, _),) = kept._kept.values()
    assert made[0].shape == (4, 16)


@pytest.mark.parametrize("cost", [False, True])
def test_a_contiguous_result_has_zeros_to_leave_out_only_where_they_pay(
    cost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged, "ENDS_COST", cost)
    kept = merged.Merged(keeping=True)
    x, weight = torch.randn(3, 4), nn.Parameter(torch.randn(4, 13))
    with torch.no_grad():
        for make in (merged.itself, torch.fliplr):
            found = kept.dense(x, make, weight)
            assert error(found, x @ make(weight)) < 1e-6
            assert found.is_contiguous()
    widths = [one.made[0].shape[1] for one in kept._kept.values()]
    assert widths == ([16, 16] if cost else [13]), "a weight as it is need not be kept"


def test_converting_a_module_converts_its_parts_too() -> None:
    class Whole(MergingModule):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(2, 2)

    assert Whole().double().part.weight.dtype == torch.float64


def doubled(module: nn.Module) -> None:
    """Change all weights where they are."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(1.5)


def stepped(module: nn.Module) -> None:
    """One step of an optimizer."""
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.Adam(module.parameters(), lr=0.1).step()


def loaded(module: nn.Module) -> None:
    """Load other weights."""
    module.load_state_dict({n: 1.5 * w for n, w in module.state_dict().items()})


def rounded(module: nn.Module) -> None:
    """To half precision and back: the old memory may be given to the new weights."""
    module.bfloat16()
    module.double()


def replaced(module: nn.Module) -> None:
    """Put other memory behind the parameters."""
    for weight in module.parameters():
        weight.data = 1.5 * weight.data


def written_behind(module: nn.Module) -> None:
    """Write where torch does not count it, as averages of weights do, then evaluate."""
    module.train()
    for weight in module.parameters():
        weight.data.mul_(1.5)
    module.eval()


def stepped_unnoticed(module: nn.Module) -> None:
    """Steps of an optimiser that writes weights in place and says so to nobody, in evaluation."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, fused=True)
    x, mask = batch((7, 4))
    with torch.enable_grad():
        for mode in (True, False):
            module.train(mode)(x, mask).sum().backward()
            optimizer.step()
            module.eval()


def stepped_after_looking(module: Any) -> None:
    """Such a step by gradients of what `attention` shows."""
    if not hasattr(module, "attention"):
        return doubled(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, fused=True)
    with torch.enable_grad():
        scores = [t for t in module.attention(*batch((7, 4))).values() if t.requires_grad]
        torch.stack([(t.masked_fill(t.isinf(), 0) ** 2).sum() for t in scores]).sum().backward()
    optimizer.step()
    return None


CHANGES = (
    doubled,
    stepped,
    loaded,
    rounded,
    replaced,
    written_behind,
    stepped_unnoticed,
    stepped_after_looking,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", MERGING)
def test_weights_that_change_are_put_together_again(
    name: str, change: Callable[[nn.Module], None]
) -> None:
    module = build(name).eval()
    x, mask = batch((7, 4))
    with torch.no_grad():
        before = module(x, mask).clone()
        change(module)
        after = module(x, mask)
        assert error(after, fresh(module, name)(x, mask)) < 1e-12
    assert error(after, before) > 1e-6


@pytest.mark.parametrize("name", MERGING)
def test_what_evaluation_keeps_never_reaches_another(name: str) -> None:
    module = build(name).eval()
    x, mask = batch((7, 4))
    with torch.inference_mode():
        wanted = module(x, mask)
    # Gradients afterwards.
    assert_same(run(module, x, mask), run(fresh(module, name), x, mask), 0.0)
    # Other tensors in the parameters' place.
    others = {n: 1.5 * w for n, w in module.state_dict().items()}
    with torch.no_grad():
        found = functional_call(module, others, (x, mask))
        assert torch.equal(module(x, mask), wanted)
        twin = fresh(module, name)
        twin.load_state_dict(others)
        assert error(found, twin(x, mask)) < 1e-12
        # Copies, and a file.
        copied = copy.deepcopy(module)
        doubled(copied)
        assert error(copied(x, mask), twin(x, mask)) < 1e-12
        assert torch.equal(module(x, mask), wanted)
        saved = io.BytesIO()
        torch.save(module, saved)
        saved.seek(0)
        assert torch.equal(torch.load(saved, weights_only=False)(x, mask), wanted)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", FAST)
def test_what_inference_left_behind_serves_gradients(name: str, frozen: bool) -> None:
    module, other, (x, mask) = build(name), build(name), batch((7, 4))
    for one in (module, other):
        one.train(not frozen).requires_grad_(not frozen)
    with torch.inference_mode():
        module(x, mask)
    assert_same(run(module, x, mask), run(other, x, mask), 0.0)


def test_nothing_is_kept_of_a_call_that_is_only_played_through() -> None:
    module = build("multi_head.sdpa").eval()
    x, _ = batch((7, 4))
    with torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True):
            module(x)
        assert torch.equal(module(x), fresh(module, "multi_head.sdpa")(x))


def test_a_compiled_call_sees_weights_that_change() -> None:
    module = build("multi_head.sdpa").eval()
    x, _ = batch((7, 4))
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
    with torch.no_grad():
        module(x)
        compiled(x)
        doubled(module)
        assert error(compiled(x), fresh(module, "multi_head.sdpa")(x)) < 1e-13
