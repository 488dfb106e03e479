"""The torch modules against torch's own and among themselves: no oracle is needed here."""

from __future__ import annotations

import copy
import inspect
import math
import subprocess
import sys
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from reference_impls.bi_lstm.modules import PackedBiLstm
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa.plain import PlainMTSA
from reference_impls.multi_head.modules import MatmulMultiHead, PlainMultiHead, sinusoids
from suites.support.batches import (
    D_IN,
    D_OUT,
    FAST,
    MECHANISMS,
    PLAIN,
    WITH_VARIANTS,
    assert_same,
    batch,
    build,
    error,
    fresh,
    run,
)

torch.set_num_threads(1)


def test_recurrent_bias_is_frozen_at_zero() -> None:
    module = PackedBiLstm(3, 4)
    frozen = {n for n, p in module.named_parameters() if not p.requires_grad}
    assert frozen == {"lstm.bias_hh_l0", "lstm.bias_hh_l0_reverse"}
    assert not any(p.any() for n, p in module.named_parameters() if n in frozen)


@pytest.mark.parametrize(("form", "base"), [("paper", 1), ("released", 2)])
def test_sinusoids_follow_their_formula(form: str, base: int) -> None:
    table = sinusoids(5, 6, form, torch.device("cpu"))
    for i in range(5):
        for m in range(3):
            angle = i / 10000 ** (base * 2 * m / 6)
            assert table[i, 2 * m].item() == pytest.approx(math.sin(angle), abs=1e-14)
            assert table[i, 2 * m + 1].item() == pytest.approx(math.cos(angle), abs=1e-14)


@pytest.mark.parametrize(("name", "variant"), WITH_VARIANTS)
def test_equals_plain(name: str, variant: str) -> None:
    module = build(name, variant)
    plain = build(f"{name.partition('.')[0]}.plain", variant)
    plain.load_state_dict(module.state_dict())
    for lengths in ((1, 1), (2, 1, 0), (3, 2), (7, 4, 1, 0)):
        x, mask = batch(lengths, padding=math.nan)
        assert_same(run(module, x, mask), run(plain, x, mask), 1e-11)
        x, _ = batch((max(lengths),) * 2)
        assert_same(run(module, x, None), run(plain, x, None), 1e-11)


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_padding_reaches_nothing(name: str) -> None:
    module = build(name)
    clean, mask = batch((7, 4, 0))
    wanted = run(module, clean, mask)
    random = torch.randn(clean.shape, generator=torch.Generator().manual_seed(5)).double()
    for content in (math.nan, math.inf, -math.inf, 1e6, random):
        x = torch.where(mask[..., None], clean, content)
        assert_same(run(module, x, mask), wanted, 0.0)
    assert not wanted["x"][~mask].any()
    if wanted["output"].ndim == 3:
        assert not wanted["output"][~mask].any()
        assert wanted["output"][mask].any()
    else:
        assert not wanted["output"][2].any()


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_fully_padded_batch_gives_zeros_and_zero_gradients(name: str) -> None:
    module = build(name)
    x, _ = batch((3, 3))
    found = run(module, x, torch.zeros(2, 3, dtype=torch.bool))
    for tensor in found.values():
        assert not tensor.any()


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_a_batch_of_no_samples_gives_one(name: str) -> None:
    module = build(name)
    x, mask = batch((3, 2))
    for some in (mask, None):
        wanted = module(x, some)
        none = x[:0].clone().requires_grad_()
        found = module(none, None if some is None else some[:0])
        assert found.shape == (0, *wanted.shape[1:])
        found.sum().backward()
        assert none.grad is not None
        assert none.grad.shape == none.shape


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_other_tensors_may_stand_in_the_parameters_places(name: str) -> None:
    module, twin = build(name).eval(), build(name).eval()
    x, mask = batch((7, 4))
    others = {n: 1.5 * w.detach() for n, w in module.state_dict().items()}
    twin.load_state_dict(others)
    with torch.no_grad():
        assert error(functional_call(module, others, (x, mask)), twin(x, mask)) < 1e-12


@pytest.mark.parametrize("name", FAST)
def test_checkpointing_changes_nothing(name: str) -> None:
    module = build(name)
    x, mask = batch((7, 4))
    assert_same(run(Checkpointed(module), x, mask), run(Checkpointed(module, False), x, mask), 0.0)


class Checkpointed(nn.Module):
    """Another module, its activations computed again in the backward pass."""

    def __init__(self, inner: nn.Module, again: bool = True) -> None:
        super().__init__()
        self.inner, self.again = inner, again

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if not self.again:
            return cast(torch.Tensor, self.inner(x, mask))
        return cast(torch.Tensor, checkpoint(self.inner, x, mask, use_reentrant=False))


@pytest.mark.parametrize("name", [*FAST, *PLAIN])
def test_mask_of_ones_is_no_mask(name: str) -> None:
    module = build(name)
    x, mask = batch((6, 6))
    assert_same(run(module, x, None), run(module, x, mask), 1e-12)


@pytest.mark.parametrize("name", MECHANISMS)
def test_plain_computes_only_the_rows_asked_for(name: str) -> None:
    module = build(f"{name}.plain")
    x, mask = batch((7, 4, 0))
    rows = torch.tensor([6, 0, 3])
    for given in (mask, None):
        whole, some = module(x, given), module(x, given, rows=rows)
        wanted = whole if MECHANISMS[name].output == "sentence" else whole[:, rows]
        assert error(some, wanted) < 1e-13


TAKE_ROWS = [
    name
    for name in FAST
    if "rows" in inspect.signature(getattr(build(name), "fuse", lambda: None)).parameters
]


@pytest.mark.parametrize("name", TAKE_ROWS)
def test_others_refuse_some_rows_in_one_line(name: str) -> None:
    module: Any = build(name)
    x, mask = batch((7, 4))
    for given in (mask, None):
        with pytest.raises(Unsupported, match=r"rows names some query positions.*take plain") as it:
            module.fuse(x, given, torch.tensor([6, 0, 3]))
        assert "\n" not in str(it.value)


def test_the_layers_that_know_rows_are_found() -> None:
    known = {name.partition(".")[0] for name in TAKE_ROWS}
    assert known >= {
        "mtsa",
        "mtsa_released",
        "mtsa_nmt",
        "mtsa_stack",
        "msmsa",
        "multi_head",
        "disa",
    }


@pytest.mark.parametrize("name", FAST)
def test_x_need_not_be_contiguous(name: str) -> None:
    module = build(name)
    x, mask = batch((7, 4))
    strided = torch.zeros(7, 2, 2 * D_IN, dtype=torch.float64)[..., ::2].transpose(0, 1)
    strided.copy_(x)
    assert not strided.is_contiguous()
    assert error(module(strided, mask), module(x, mask)) < 1e-13


@pytest.mark.parametrize("name", FAST)
def test_copies_and_autocast(name: str) -> None:
    module = build(name).float()
    x, mask = batch((7, 4, 1, 0), padding=math.nan)
    x = x.float().requires_grad_()
    wanted = module(x, mask)
    twin = copy.deepcopy(module)
    assert torch.equal(twin(x, mask), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = module(x, mask)
    assert 0 < error(low, wanted) < 0.05
    low.float().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert torch.equal(module(x, mask), wanted)


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", FAST)
def test_steps_that_torch_does_not_count_are_seen(name: str, mode: bool) -> None:
    """An optimiser with ``fused=True`` writes weights in place and says so to nobody."""
    module, (x, mask) = build(name).eval(), batch((7, 4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, fused=True)

    def told() -> torch.Tensor:
        with torch.no_grad():
            return module(x, mask).clone()

    before = told()
    for _ in range(2):
        module.train(mode)
        module(x, mask).sum().backward()
        optimizer.step()
        if mode:
            module.eval()
    twin = fresh(module, name)
    assert error(told(), before) > 1e-4
    assert error(told(), twin(x, mask).detach()) < 1e-12


@pytest.mark.parametrize("name", [n for n in FAST if hasattr(build(n), "attention")])
def test_a_step_after_looking_at_the_scores_is_seen(name: str) -> None:
    module, (x, mask) = cast(Any, build(name).eval()), batch((7, 4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, fused=True)
    with torch.no_grad():
        before = module(x, mask).clone()
    scores = [t for t in module.attention(x, mask).values() if t.requires_grad]
    torch.stack([(t.masked_fill(t.isinf(), 0) ** 2).sum() for t in scores]).sum().backward()
    optimizer.step()
    twin = fresh(module, name)
    with torch.no_grad():
        found = module(x, mask)
    assert error(found, before) > 1e-6
    assert error(found, twin(x, mask)) < 1e-12


@pytest.mark.parametrize("name", ["mtsa.algorithm1", "multi_head.sdpa", "disa.broadcast"])
def test_compiles_into_one_graph(name: str) -> None:
    module = build(name)
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
    for lengths in ((5, 3, 0), (9, 9, 2)):
        x, mask = batch(lengths)
        assert error(compiled(x, mask), module(x, mask)) < 1e-12
        assert error(compiled(x, None), module(x, None)) < 1e-12


def test_positions_are_added_to_the_input() -> None:
    module = build("multi_head.sdpa")
    without = build("multi_head.sdpa", "no_positions")
    without.load_state_dict(module.state_dict())
    x, mask = batch((7, 4))
    moved = x + sinusoids(7, D_IN, "paper", torch.device("cpu"))
    assert error(module(x, mask), without(moved, mask)) < 1e-13
    assert error(module(x, mask), without(x, mask)) > 0.1


def test_positions_stay_exact_when_the_dtype_changes() -> None:
    module = build("multi_head.sdpa")
    x, mask = batch((7, 4))
    wanted = module(x, mask)
    module.bfloat16()(x.bfloat16(), mask)
    exact = build("multi_head.sdpa")
    module.double().load_state_dict(exact.state_dict())
    assert torch.equal(module(x, mask), wanted)
    longer, long_mask = batch((40, 3))
    assert error(module(longer, long_mask), exact(longer, long_mask)) == 0
    assert not any("position" in key for key in module.state_dict())


def test_records_do_not_import_torch_or_numpy() -> None:
    names = ", ".join(sorted({m.folder for m in MECHANISMS.values()}))
    code = f"import sys, {names}; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_set_of_weights_serves_all_implementations() -> None:
    for mechanism in MECHANISMS.values():
        for variant in ("default", *mechanism.variants):
            shapes = {
                frozenset(
                    (n, tuple(w.shape))
                    for n, w in build(f"{mechanism.name}.{i.name}", variant).state_dict().items()
                )
                for i in mechanism.implementations
            }
            assert len(shapes) == 1, (mechanism.name, variant)


def test_score_weights_multiply_every_score() -> None:
    for factory in (PlainMultiHead, MatmulMultiHead):
        heads = factory(D_IN, D_OUT, heads=2, positions=None, output_layer=False).double()
        x, _ = batch((5,))
        with torch.no_grad():
            heads.q_w.mul_(1e4)
        # With scores that far apart the softmax picks one key: the output is one of the values.
        values = x @ heads.v_w[0]  # [1, N, d_h]
        out = heads(x)[..., : values.shape[-1]]
        assert (out[0, :, None] - values).abs().amax(-1).amin(-1).max() < 1e-6
    assert MECHANISMS["mtsa"].score_weights == ("q_w", "s2_w", "s2_b")
    module = PlainMTSA(D_IN, D_OUT, heads=2).double()
    before = module.project(batch((5,))[0])
    with torch.no_grad():
        for name in MECHANISMS["mtsa"].score_weights:
            getattr(module, name).mul_(3)
    after = module.project(batch((5,))[0])
    assert error(after[0] @ after[1].mT, 3 * before[0] @ before[1].mT) < 1e-14
    assert error(after[3], 3 * before[3]) < 1e-14
