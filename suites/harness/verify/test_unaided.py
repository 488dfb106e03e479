"""A module without oracle: what its own answers say of it, at small sizes and where it is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.errors import UsageError
from harness.registry import Registry
from harness.verify.margin import check_case
from harness.verify.unaided.gradients import rate
from harness.verify.unaided.judge import check_properties
from suites.support.misbehaving.core import Attention

torch.set_num_threads(1)

HERE, FAMILY = "suites.harness.verify.test_unaided:", "suites.support.misbehaving."


class Lost(Attention):
    """A weight that is detached."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.more = torch.nn.Parameter(torch.ones(d_out))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k, v, mask) + self.more.detach()


class Weightless(torch.nn.Module):
    """The mean of every token's features, as often as wanted."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_out = d_out

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mean = x.masked_fill(~mask[..., None], 0).mean(2, keepdim=True)
        return mean.expand(-1, -1, self.d_out).contiguous()


class Unheard(Attention):
    """Declares what nobody knows."""

    attnbench_declares = ("quantised",)


def judged(place: str, dtype: str = "f32") -> dict[str, Any]:
    mechanism, implementation = Registry([place]).find(place.partition(":")[2])
    return check_properties(mechanism, implementation, dtype, "cpu", ("processes",))


def timed(module: str, case: str) -> dict[str, Any]:
    """What is said of a module of the family at a benchmark's shape."""
    name = module.partition(":")[2]
    return check_case(f"{name}.module-{case}-cpu+1-thread", [FAMILY + module])


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_what_is_right_passes_in_every_precision(dtype: str) -> None:
    row = judged(f"{FAMILY}core:Attention", dtype)
    assert row["verdict"] == "ok", row
    assert row["value_margin"] > 1
    assert row["gradient_margin"] > 1
    assert row["comparisons"] > 100


def test_what_has_no_weights_passes_too() -> None:
    row = judged(f"{HERE}Weightless")
    assert row["verdict"] == "ok", row


def test_a_gradient_that_is_none_is_told_so() -> None:
    row = judged(f"{HERE}Lost")
    assert (row["verdict"], row["found_by"]) == ("wrong", "gradients")
    assert "a step along more moves the output at a rate of" in row["detail"]
    assert "its gradient is None" in row["detail"]


def test_what_is_so_on_purpose_is_declared_and_stands_in_the_row() -> None:
    row = judged(f"{FAMILY}honest:StraightThrough", "f64")
    assert row["verdict"] == "ok"
    assert "declares straight-through" in row["detail"]
    with pytest.raises(UsageError, match="given 'quantised'; expected some of straight-through"):
        judged(f"{HERE}Unheard")


@pytest.mark.parametrize("name", ["mtsa.plain", "none.plain", "source2token.plain", "resa.masked"])
def test_mechanisms_with_an_oracle_pass_without_it(name: str) -> None:
    mechanism, implementation = Registry().find(name)
    alone = replace(mechanism, oracle=None)
    row = check_properties(alone, implementation, "f32", "cpu", ("processes",))
    assert row["verdict"] == "ok", row


MANY, LONG = "B6-N16-D24-f32-forward", "B2-N600-D24-f32-forward"
TRAINED, LONG_TRAINED = "B4-N16-D24-f32-training", "B2-N600-D24-f32-training"


@pytest.mark.parametrize(
    ("module", "case", "says"),
    [
        ("mistakes:BatchFirstForgotten", MANY, "the whole batch in place of its first and last"),
        ("cheats:LessUnderInference", MANY, "the whole batch in place of its first and last"),
        ("cheats:LessWhenLarge", MANY, "the whole batch in place of its first and last"),
        ("mistakes:Truncates", LONG, "place 600 of 600 on left the output exactly"),
        ("mistakes:PaddedLengthWhenLong", LONG, "75 more padded positions changed the output"),
        ("mistakes:PaddedLengthWhenLong", LONG_TRAINED, "75 more padded positions changed the"),
        ("mistakes:DetachedKeys", TRAINED, "a step along x and all weights moves the output"),
        ("mistakes:LostFactor", TRAINED, "a step along x and all weights moves the output"),
    ],
)
def test_what_is_wrong_is_found_where_it_is_timed(module: str, case: str, says: str) -> None:
    row = timed(module, case)
    assert row["verdict"] == "wrong"
    assert says in row["what"]


@pytest.mark.parametrize("case", [MANY, LONG, TRAINED, LONG_TRAINED])
def test_what_is_right_is_right_there(case: str) -> None:
    row = timed("core:Attention", case)
    assert row["verdict"] == "ok"
    assert row["margin"] > 1


def test_nothing_is_known_where_rounding_alone_decides() -> None:
    row = timed("mistakes:IllConditioned", "B2-N16-D24-bf16-forward")
    assert row["verdict"] == "no oracle"
    assert row["margin"] is None
    assert "ill-conditioned" in row["what"]


def test_a_rate_is_unsure_at_a_kink_and_at_a_jump_and_sure_elsewhere() -> None:
    smooth = rate(lambda step: (1 + step) ** 3, 1e-16, 1.0, 1e-2)
    assert smooth.value == pytest.approx(3)
    assert smooth.unsure < 1e-8
    assert rate(abs, 1e-16, 1.0, 1e-2).unsure > 0.5
    assert rate(lambda step: float(step > 0), 1e-16, 1.0, 1e-2).unsure > 0.5
