"""Whether the same bits come again: what would not give them, and the words for it."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.registry import Registry
from harness.verify import beside
from harness.verify.run import price, same_bits

HERE = "suites.harness.verify.test_beside"


class Steady(nn.Module):
    """A dense layer for each token."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map, self.calls = nn.Linear(d_in, d_out), 0

    def more(self, x: Tensor) -> float:
        """What is added to every number."""
        return 0.0

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        return ((self.map(x) + self.more(x)) * mask[..., None]).tanh()


class Again(Steady):
    """Of the number of calls."""

    def more(self, x: Tensor) -> float:
        return 0.01 * self.calls


class Batch(Steady):
    """Of the number of samples."""

    def more(self, x: Tensor) -> float:
        return 0.01 * len(x)


class Threads(Steady):
    """Of the number of threads."""

    def more(self, x: Tensor) -> float:
        return 0.01 * torch.get_num_threads()


class Compiled(Steady):
    """Of being compiled."""

    def more(self, x: Tensor) -> float:
        return 0.01 * torch.compiler.is_compiling()


class Refused(Steady):
    """What has no deterministic form."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("no deterministic form")
        return super().forward(x, mask)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "REPEATS", 3)
    monkeypatch.setattr(beside, "PAIRS", 2)


def asked(kind: type[nn.Module]) -> tuple[str, str, str, tuple[str]]:
    """A module of this file, as a child is asked of it."""
    place = f"{HERE}:{kind.__name__}"
    (name,) = Registry((place,)).given_names
    return name, "f32", "cpu", (place,)


def told(kind: type[nn.Module]) -> dict[str, Any]:
    """The record of a module of this file."""
    of = asked(kind)
    return {"status": "ok", **beside.determinism(*of), **beside.compiled(*of)}


def without_compiler() -> None:
    """In place of torch's search for one."""
    raise RuntimeError("No working C++ compiler found")


@pytest.mark.parametrize("kind", [Steady, Again, Batch, Threads, Refused])
def test_what_changes_the_bits_is_named(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "get_cpp_compiler", without_compiler)
    found = told(kind)
    named = kind.__name__.lower()
    for one in ("again", "batch", "threads"):
        # Who counts calls differs from itself wherever it is asked again.
        assert (found[one] > 1e-4) == (kind is Again or one == named), one
    assert found["compiled"] is None
    assert "not tried, no compiler is here: No working C++" in found["compiled_reason"]
    if kind is Refused:
        assert found["price"] is None
        assert found["price_reason"] == "refused by torch: no deterministic form"
        assert price(found) == ""
    else:
        assert found["price_low"] <= found["price"] <= found["price_high"]
    assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_compiled_module_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # It knows itself compiled by whatever backend; this one writes no code.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    assert told(Compiled)["compiled"] > 1e-4


class Pretended:
    """A graph, a stream or a capture of a GPU that isn't here: what is captured runs at once."""

    capturing = False

    def __init__(self, *_: object) -> None: ...

    def wait_stream(self, other: object) -> None: ...

    def replay(self) -> None: ...

    def __enter__(self) -> None:
        Pretended.capturing = True

    def __exit__(self, *_: object) -> None:
        Pretended.capturing = False


class Captured(Steady):
    """Of being captured."""

    def more(self, x: Tensor) -> float:
        return 0.01 * Pretended.capturing


class Waiting(Steady):
    """Asks the device for a number in every pass, which no graph can."""

    def more(self, x: Tensor) -> float:
        if Pretended.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        return 0.0


@pytest.mark.parametrize(
    ("kind", "differs"), [(Steady, False), (Again, True), (Captured, True), (Waiting, None)]
)
def test_a_graph_is_compared_with_eager(
    kind: type[nn.Module], differs: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDAGraph", "Stream", "graph", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Pretended)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    found = beside.graphed(*asked(kind))
    if differs is None:
        assert found["graphed"] is None
        assert found["graphed_reason"].startswith("failed: operation not permitted")
    else:
        assert (found["graphed"] > 1e-4) == differs


def test_bits_in_words() -> None:
    same = dict.fromkeys(("again", "batch", "threads", "compiled"), 0.0)
    record = {"status": "ok", "price": 1.234, "price_low": 1.2, "price_high": 1.3, **same}
    assert same_bits(record) == "bitwise"
    assert same_bits({**record, "batch": 3e-8, "compiled": 1.2e-7}) == "batch 3e-08, compiled 1e-07"
    assert same_bits({**record, "compiled": None}) == "bitwise; compiled not told"
    assert same_bits({"status": "timeout"}) == "timeout"
    assert same_bits({**record, "graphed": 1e-3}) == "graphed 1e-03"
    assert same_bits({**record, "graphed": None}) == "bitwise; graphed not told"
    assert price(record) == "1.23x (1.20 to 1.30)"
