"""What a batch may look like: padding, short and empty samples, no samples, rows, odd memory."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from reference_impls.mechanism import Unsupported
from suites.support.batches import (
    D_IN,
    DEFAULTS,
    FAST,
    MECHANISMS,
    PLAIN,
    assert_same,
    batch,
    build,
    cotangent_of,
    error,
    longer,
    mechanism_of,
    module_of,
    of_sentences,
    run,
)

ALL = [*FAST, *PLAIN]
EXACT = 1e-11
"""Other shapes, another order of sums: rounding in float64, nothing more."""
LENGTHS = (7, 0, 4, 1)
"""Neither falling nor rising, and one sample without a real token."""


@pytest.mark.parametrize("name", ALL)
def test_a_sample_of_a_batch_is_that_sample_alone(name: str) -> None:
    """Whatever stands at padding, and, unless its amount matters, without padding at all."""
    module = build(name)
    x, mask = batch(LENGTHS, padding=math.nan)
    found = run(module, x, mask)
    random = torch.randn(x.shape, generator=torch.Generator().manual_seed(5)).double()
    for content in (math.inf, random):
        assert_same(run(module, torch.where(mask[..., None], x, content), mask), found, 0.0)
    assert not found["x"][~mask].any()
    sentences = of_sentences(name)
    assert not (found["output"][1] if sentences else found["output"][~mask]).any()
    cotangent = cotangent_of(found["output"])
    module.zero_grad()
    for b, n in enumerate(LENGTHS):
        if n == 0:
            continue
        end = len(mask[b]) if mechanism_of(name).padding_matters else n
        alone = x[b : b + 1, :end].clone().requires_grad_()
        out = module(alone, mask[b : b + 1, :end] if end > n else None)[0]
        here = b if sentences else (b, slice(end))
        assert error(out, found["output"][here]) < EXACT
        (out * cotangent[here]).sum().backward()
        assert alone.grad is not None
        assert error(alone.grad[0, :n], found["x"][b, :n]) < EXACT
    for weight, parameter in module.named_parameters():
        if parameter.requires_grad:
            gradient = torch.zeros(()) if parameter.grad is None else parameter.grad
            assert error(gradient, found[weight]) < EXACT, weight


@pytest.mark.parametrize("name", ALL)
def test_nothing_gives_nothing(name: str) -> None:
    """No real token in any sample: zeros. No sample: none."""
    module = build(name)
    x, mask = batch((3, 2))
    for tensor in run(module, x, torch.zeros_like(mask)).values():
        assert not tensor.any()
    for some in (mask, None):
        none = x[:0].clone().requires_grad_()
        found = module(none, None if some is None else some[:0])
        assert found.shape == (0, *module(x, some).shape[1:])
        found.sum().backward()
        assert none.grad is not None
        assert none.grad.shape == none.shape


@pytest.mark.parametrize("name", ALL)
def test_no_mask_is_a_mask_of_ones(name: str) -> None:
    module = build(name)
    x, mask = batch((6, 6))
    assert_same(run(module, x, None), run(module, x, mask), 1e-12)


@pytest.mark.parametrize("name", FAST)
def test_padding_may_stand_anywhere_or_is_refused(name: str) -> None:
    module, plain = build(name), build(f"{name.partition('.')[0]}.plain")
    plain.load_state_dict(module.state_dict())
    x, _ = batch((6, 6, 6))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 0]]).bool()
    try:
        got = run(module, x, mask)
    except ValueError as reason:
        assert "expected padding on the right only" in str(reason)  # noqa: PT017
        return
    assert_same(got, run(plain, x, mask), EXACT)


PADDING_MATTERS = [n for n in DEFAULTS if mechanism_of(n).padding_matters]


@pytest.mark.parametrize("name", PADDING_MATTERS)
def test_amount_of_padding_matters_where_the_record_says_so(name: str) -> None:
    module = module_of(name)
    # Blocks have 3 tokens in 7 to 13 positions, 4 in 14; those of padding count too.
    x, mask = batch((7, 6, 4))
    out = module(x, mask)
    changed = []
    for more in (1, 2, 5, 7):
        other = module(*longer(x, mask, more))
        changed.append(error(other if of_sentences(name) else other[:, :7], out))
        assert torch.equal(module(*longer(x, mask, more, math.nan)), other)  # its content does not
    assert max(changed) > 1e-3


@pytest.mark.parametrize("name", MECHANISMS)
def test_plain_computes_only_the_rows_asked_for(name: str) -> None:
    module = build(f"{name}.plain")
    x, mask = batch((7, 4, 0))
    rows = torch.tensor([6, 0, 3])
    for given in (mask, None):
        whole, some = module(x, given), module(x, given, rows=rows)
        assert error(some, whole if of_sentences(name) else whole[:, rows]) < 1e-13


def test_others_refuse_some_rows_in_one_line() -> None:
    x, mask = batch((7, 4))
    refusing = set()
    for name in FAST:
        module: Any = module_of(name)
        if "rows" not in inspect.signature(getattr(module, "fuse", lambda: None)).parameters:
            continue
        refusing.add(name.partition(".")[0])
        for given in (mask, None):
            with pytest.raises(Unsupported, match=r"rows names some query .*take plain") as it:
                module.fuse(x, given, torch.tensor([6, 0, 3]))
            assert "\n" not in str(it.value)
    known = "mtsa mtsa_released mtsa_nmt mtsa_stack msmsa multi_head disa"
    assert refusing >= set(known.split())


@pytest.mark.parametrize("name", FAST)
def test_x_need_not_be_contiguous(name: str) -> None:
    module = module_of(name)
    x, mask = batch((7, 4))
    strided = torch.zeros(7, 2, 2 * D_IN, dtype=torch.float64)[..., ::2].transpose(0, 1)
    strided.copy_(x)
    assert not strided.is_contiguous()
    assert error(module(strided, mask), module(x, mask)) < 1e-13
