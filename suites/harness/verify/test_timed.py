"""Timed calls computed again: what is right passes, what is not is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.inputs import INPUT, OUTPUT, gradient_of
from harness.isolate import Wrong
from harness.measure.run import prepare
from harness.measure.watch import LOOKS, Watch
from harness.registry import builtins
from harness.verify import timed
from harness.verify.budget import Deviation
from harness.verify.timed import check_timed

HERE = "suites.harness.verify.test_timed:"


class Dropping(torch.nn.Module):
    """Draws random numbers whenever it is called."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.dropout(self.map(x), 0.5, True)


class Plain(Dropping):
    """One product."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.map(x)


class Kinked(Dropping):
    """Its gradient jumps where its input, rounded, is anything."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.map(x * 0 + 1) + (x - x.detach()).sum(-1, keepdim=True) * (
            ((x * 2**22).round() % 2).detach().mean()
        )


class Detached(Dropping):
    """Gives its weights no gradient once it was called more often than to compute it again."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        weight = self.map.weight.detach() if self.calls > 3 * LOOKS else self.map.weight
        return torch.nn.functional.linear(x, weight, self.map.bias)


def seen(case: str, given: list[str], calls: int = 3) -> dict[str, Any]:
    """Evidence of a few samples."""
    prepared = prepare(case, given)
    prepared.call()
    over = Watch(prepared, 1e-3, frozenset({"fresh-inputs"}))
    over.begin(calls)
    for _ in range(5):
        for inputs in over.before(calls):
            prepared.call(*inputs)
        over.after()
    return over.evidence()


def of(name: str, phase: str, more: str = "") -> tuple[str, list[str]]:
    return f"{name}.module-B4-N5-D8-f32-{phase}-cpu+1-thread{more}", [HERE + name]


@pytest.mark.parametrize("phase", ["forward", "training"])
@pytest.mark.parametrize("mechanism", ["multi_head", "kim_cnn", "resan", "biblosa_released"])
@pytest.mark.parametrize(("dtype", "more"), [("f32", "+padded"), ("f64", ""), ("bf16", "")])
def test_our_own_are_the_same_in_another_order_and_alone(
    mechanism: str, phase: str, dtype: str, more: str
) -> None:
    known = builtins()[mechanism]
    heads = "-H4" if known.takes_heads else ""
    last = known.implementations[-1].name if mechanism != "multi_head" else "sdpa"
    case = f"{mechanism}.{last}-B4-N9-D24{heads}-{dtype}-{phase}-cpu+1-thread{more}"
    found = check_timed(case, seen(case, []))
    assert found["checked"] == 3
    assert 0 <= found["checked_error"] < 0.3 * found["checked_budget"]


def test_what_draws_random_numbers_is_the_same_from_the_same_seed() -> None:
    case, given = of("Dropping", "training")
    evidence = seen(case, given)
    assert all(look["moved"] for look in evidence["looks"])
    assert check_timed(case, evidence, given)["checked"] == 3
    compiled, _ = of("Dropping", "training", "+compiled")
    found = check_timed(compiled, evidence, given)
    assert found == {
        "checked": 0,
        "unchecked": "compiled code draws random numbers of its own",
    }


@pytest.mark.parametrize("name", ["the output", "the gradient of map.weight", "the input"])
def test_a_value_that_is_off_is_named_with_its_call_and_its_budget(name: str) -> None:
    case, given = of("Plain", "training")
    evidence = seen(case, given, 1)
    assert check_timed(case, evidence, given)["checked"] == 3
    look = evidence["looks"][1]
    look["values"][name][1][7] += 900.0
    said = (
        rf"{name} of timed call 1 of sample {look['sample']} differs from that of .* by .*\(budget"
    )
    if name == "the input":
        said = f"timed call 1 of sample {look['sample']} changed its input"
    with pytest.raises(Wrong, match=said):
        check_timed(case, evidence, given)


def test_a_gradient_that_is_not_there_any_more_is_named() -> None:
    case, given = of("Detached", "training")
    with pytest.raises(
        Wrong, match=r"a fresh module gives .*the gradient of map\.weight"
    ) as raised:
        check_timed(case, seen(case, given, 6 * LOOKS), given)
    assert raised.value.value == {"found_by": "timed-values"}


def test_a_gradient_at_a_kink_is_no_fault() -> None:
    """Where the module's own moves as far when its input is rounded."""
    case, given = of("Kinked", "training")
    evidence = seen(case, given)
    name = "the gradient of the input"
    for look in evidence["looks"]:
        look["values"][name][1][:] = [v * 1.001 for v in look["values"][name][1]]
    assert check_timed(case, evidence, given)["checked"] == 3
    for look in evidence["looks"]:
        look["values"][name][1][0] += 9.0
    with pytest.raises(Wrong, match="the gradient of the input"):
        check_timed(case, evidence, given)


def test_operations_are_counted_and_nothing_is_where_torch_knows_none() -> None:
    case, given = of("Dropping", "training")
    found = check_timed(case, seen(case, given), given, count=True)
    # Forward, and the gradients of weight and input: a product of 20 x 8 x 8 each.
    assert found["operations"] == 3 * 2 * 20 * 8 * 8
    case = "multi_head.plain-B4-N5-D8-H2-f32-forward-cpu+1-thread"
    assert check_timed(case, seen(case, []), count=True)["operations"] > 0


@pytest.mark.parametrize(
    ("crosses_at", "seconds", "drawn", "kink"),
    [(30, 0.01, 31, True), (2, 60.0, 3, True), (None, 0.01, 64, False), (None, 60.0, 8, False)],
)
def test_a_kink_that_is_rarely_crossed_is_found_and_a_fault_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, crosses_at: int | None, seconds: float, drawn: int, kink: bool
) -> None:
    """One pre-activation near zero: each rounding of the input crosses it by chance only."""
    passes, name = 0, gradient_of(INPUT)

    def expected(*_: Any) -> dict[str, torch.Tensor]:
        nonlocal passes
        passes += 1
        crossed = crosses_at is not None and passes == crosses_at + 2  # the first is not shaken
        return {name: torch.full((4,), 0.02 if crossed else 0.0)}

    fresh = object.__new__(timed._Fresh)
    fresh._arithmetic = "f32"
    monkeypatch.setattr(fresh, "_expected", expected)
    monkeypatch.setattr(timed, "perf_counter", lambda: passes * seconds)
    off = Deviation(name, 0.02, 2e-4, name)
    assert fresh.at_a_kink({"seed": 0}, [off]) is kink
    assert passes == drawn + 1
    assert not fresh.at_a_kink({"seed": 0}, [off, Deviation(OUTPUT, 0.02, 2e-4, "")])
