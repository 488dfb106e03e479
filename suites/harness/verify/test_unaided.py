"""A module without oracle: what its own answers say of it, at small sizes and where it is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from harness.errors import UsageError
from harness.registry import Registry
from harness.verify.margin import check_case
from harness.verify.unaided.gradients import rate
from harness.verify.unaided.judge import check_properties

torch.set_num_threads(1)

HERE = "suites.harness.verify.test_unaided:"


class Mean(nn.Module):
    """Every token and the mean of its sentence; right."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.mean = nn.Linear(d_in, d_out)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        mean = x.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
        return self.core(x, mean).masked_fill(~mask[..., None], 0)

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """What differs between the modules here."""
        return self.own(x) + torch.tanh(self.mean(mean))


class Mixed(nn.Module):
    """torch's attention without ``batch_first``: over the samples in place of the tokens."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.attention = nn.MultiheadAttention(d_out, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.own(x.masked_fill(~mask[..., None], 0))
        return self.attention(x, x, x)[0].masked_fill(~mask[..., None], 0)


class Short(Mean):
    """Sees 512 tokens."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        out = super().core(x[:, :512], mean * 0)
        return nn.functional.pad(out, (0, 0, 0, x.shape[1] - out.shape[1]))


class Stretched(Mean):
    """Where the input is long, its mean counts padding too."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        return super().core(x, mean * (x.any(-1).sum(1)[:, None, None] / n if n > 540 else 1))


class Timed(Mean):
    """Less in `torch.inference_mode`, in which it is timed, and in batches as there."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        less = len(x) > 4 and torch.is_inference_mode_enabled()
        return super().core(x, mean * (not less))


class Lost(Mean):
    """A weight that is detached."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return self.own(x) + nn.functional.linear(mean, self.mean.weight.detach(), self.mean.bias)


class Twice(Mean):
    """A factor of two in the gradient."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        out = super().core(x, mean)
        return 2 * out - out.detach()


class Wild(Mean):
    """A function that no precision resolves."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e8 * super().core(x, mean))


class Signs(Mean):
    """Signs, with a gradient that passes straight through them."""

    def core(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        out = super().core(x, mean)
        return out + (out.sign() - out).detach()


class Declared(Signs):
    """It says so."""

    attnbench_declares = ("straight-through",)


class Unheard(Mean):
    """Declares what nobody knows."""

    attnbench_declares = ("quantised",)


def judged(name: str, dtype: str = "f32") -> dict[str, Any]:
    mechanism, implementation = Registry([HERE + name]).find(name)
    return check_properties(mechanism, implementation, dtype, "cpu", ("processes",))


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_what_is_right_passes_in_every_precision(dtype: str) -> None:
    row = judged("Mean", dtype)
    assert row["verdict"] == "ok", row
    assert row["value_margin"] > 1
    assert row["gradient_margin"] > 1
    assert row["comparisons"] > 100


def test_a_gradient_that_is_none_is_told_so() -> None:
    row = judged("Lost")
    assert (row["verdict"], row["found_by"]) == ("wrong", "gradients")
    assert "its gradient is None" in row["detail"]


def test_what_is_so_on_purpose_is_declared_and_stands_in_the_row() -> None:
    row = judged("Declared", "f64")
    assert row["verdict"] == "ok"
    assert "declares straight-through" in row["detail"]
    with pytest.raises(UsageError, match="given 'quantised'; expected some of straight-through"):
        judged("Unheard")


@pytest.mark.parametrize("name", ["mtsa.plain", "none.plain", "source2token.plain", "resa.masked"])
def test_mechanisms_with_an_oracle_pass_without_it(name: str) -> None:
    mechanism, implementation = Registry().find(name)
    alone = replace(mechanism, oracle=None)
    row = check_properties(alone, implementation, "f32", "cpu", ("processes",))
    assert row["verdict"] == "ok", row


@pytest.mark.parametrize(
    ("name", "case", "says"),
    [
        ("Mixed", "B6-N16-D24-f32-forward", "the whole batch in place of its first and last"),
        ("Short", "B2-N600-D24-f32-forward", "place 600 of 600 on left the output exactly"),
        ("Stretched", "B2-N600-D24-f32-forward", "75 more padded positions changed the output"),
        ("Stretched", "B2-N600-D24-f32-training", "75 more padded positions changed the"),
        ("Timed", "B6-N16-D24-f32-forward", "the whole batch in place of its first and last"),
        ("Lost", "B4-N16-D24-f32-training", "a step along x and all weights moves the output"),
        ("Twice", "B4-N16-D24-f32-training", "a step along x and all weights moves the output"),
    ],
)
def test_what_is_wrong_is_found_where_it_is_timed(name: str, case: str, says: str) -> None:
    row = check_case(f"{name}.module-{case}-cpu+1-thread", [HERE + name])
    assert row["verdict"] == "wrong"
    assert says in row["what"]
    right = check_case(f"Mean.module-{case}-cpu+1-thread", [HERE + "Mean"])
    assert right["verdict"] == "ok"
    assert right["margin"] > 1


def test_nothing_is_known_where_rounding_alone_decides() -> None:
    row = check_case("Wild.module-B2-N16-D24-f32-forward-cpu+1-thread", [HERE + "Wild"])
    assert row["verdict"] == "no oracle"
    assert row["margin"] is None
    assert "ill-conditioned" in row["what"]


def test_a_rate_is_unsure_at_a_kink_and_at_a_jump_and_sure_elsewhere() -> None:
    smooth = rate(lambda step: (1 + step) ** 3, 1e-16, 1.0, 1e-2)
    assert smooth.value == pytest.approx(3)
    assert smooth.unsure < 1e-8
    assert rate(abs, 1e-16, 1.0, 1e-2).unsure > 0.5
    assert rate(lambda step: float(step > 0), 1e-16, 1.0, 1e-2).unsure > 0.5
