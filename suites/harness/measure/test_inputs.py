"""Inputs that nobody has seen: drawn again from their secret, and never twice the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.case import parse
from harness.inputs import (
    DRAWN,
    ELEMENTS,
    MOST_BUFFERS,
    MOST_BYTES,
    InputPool,
    InputSource,
    buffers,
    is_finite,
    positions,
    room,
)

NAN, INF = float("nan"), float("inf")
SMALL = "multi_head.plain-B2-N4-D8x6-H2-{}-{}-cpu"
LONG = "multi_head.plain-B1-N2048-D256-H2-f32-forward-cpu"


def source(
    seed: int, dtype: str = "f32", phase: str = "training", output: str = "tokens"
) -> InputSource:
    return InputSource(parse(SMALL.format(dtype, phase)), output, seed)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_same_secret_gives_the_same_inputs_and_any_other_others(dtype: str) -> None:
    def drawn(secret: int, seed: int) -> torch.Tensor:
        return torch.cat(
            [t.flatten() for one in source(secret, dtype).pieces(seed, 3) for t in one]
        )

    assert torch.equal(drawn(1, 7), drawn(1, 7))
    assert not torch.equal(drawn(1, 7), drawn(1, 8))
    assert not torch.equal(drawn(1, 7), drawn(2, 7))


def test_an_input_has_the_shapes_of_its_case() -> None:
    ((x, cotangent),) = source(0).pieces(0, 1)
    assert (x.shape, cotangent.shape) == ((2, 4, 8), (2, 4, 6))
    ((x, cotangent),) = source(0, output="sentence").pieces(0, 1)
    assert cotangent.shape == (2, 6)
    ((x,),) = source(0, phase="forward").pieces(0, 1)
    assert x.shape == (2, 4, 8)


def test_long_inputs_are_standard_normal_and_do_not_repeat_in_place() -> None:
    ((x,),) = InputSource(parse(LONG), "tokens", 3).pieces(5, 1)
    assert x.numel() == 2 * DRAWN
    assert abs(float(x.mean())) < 0.01
    assert float(x.std()) == pytest.approx(1, abs=0.11)
    tokens = {tuple(row[:4].tolist()) for row in x[0]}
    assert len(tokens) == 2048


def test_a_pool_writes_each_sample_anew_into_buffers_in_an_order_of_its_own() -> None:
    drawn = source(0)
    pool = InputPool(drawn, buffers(drawn, 6, leaf=True))
    orders, seen = set(), set()
    for seed in range(20):
        batch = pool.write(seed, 4)
        for (x, cotangent), (same, flows) in zip(batch, drawn.pieces(seed, 4), strict=True):
            assert torch.equal(x, same)
            assert torch.equal(cotangent, flows)
            assert x.requires_grad
            assert x.is_leaf
            seen.add(tuple(x.flatten().tolist()))
        orders.add(tuple(x.data_ptr() for x, _ in batch))
    assert len(orders) > 15
    assert len({at for order in orders for at in order}) == 6
    assert len(seen) == 80, "an input came twice"


def test_a_sample_has_room_for_as_many_calls_as_are_little_memory() -> None:
    assert room(source(0)) == MOST_BUFFERS
    assert room(InputSource(parse(LONG), "tokens", 0)) == MOST_BYTES // (2 * DRAWN * 4)
    huge = InputSource(parse(LONG.replace("B1", "B40")), "tokens", 0)
    assert room(huge) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_finite(dtype: torch.dtype) -> None:
    least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    assert is_finite(torch.tensor([least, -0.0, 0.0, most], dtype=dtype))
    assert is_finite(torch.empty(0, 3, dtype=dtype))
    for value in (NAN, INF, -INF):
        assert not is_finite(torch.tensor([0.0, value, 1.0], dtype=dtype))


def test_what_a_thread_still_fills_is_not_told_to_be_nan() -> None:
    """By what is read: the race itself is lost once in a thousand times."""
    readings: list[torch.Tensor] = []

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            readings.extend(one for one in args if one is result)
            return function(*args, **(kwargs or {}))

    result = torch.ones(3)
    with Reads():
        assert is_finite(result)
    assert len(readings) == 1


def test_the_numbers_that_are_compared_are_spread_and_known_again() -> None:
    result = torch.zeros(50, 60)
    found = positions(5, "the output", result)
    assert found.shape == (ELEMENTS,)
    assert torch.equal(found, positions(5, "the output", result))
    assert not torch.equal(found, positions(6, "the output", result))
    assert not torch.equal(found, positions(5, "the input", result))
    assert int(found.max()) > 2000 > 1000 > int(found.min()) >= 0
