"""What needs more memory than there is ends at once, and says by which numbers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.case import parse, size_of
from harness.isolate import Outcome
from harness.measure import blocks, call
from harness.measure import device as devices
from harness.measure.call import least_bytes, without_room
from harness.measure.frontier import Bounds, Search
from harness.records import journal
from harness.registry import Registry
from suites.support.sessions import FINGERPRINT, case, ignore, made_up

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "beside", "weights"),
    [
        # Tokens out without a formula of the implementation's own: the mechanism's is that of a
        # good one (multi-head's holds N x N, which sdpa does not), so the output alone counts.
        ("multi_head.sdpa-B2-N1000-D24x48-H4-f32-training-cpu", 2 * 1000 * 48, True),
        ("bi_lstm.packed-B2-N1000-D24x48-f64-forward-cpu", 2 * 1000 * 48, True),
        ("source2token.plain-B2-N1000-D24-f32-forward-cpu", 2 * 24, True),
        # Of options that the formula of weights does not read nothing is known.
        ("source2token.plain[activation=elu]-B2-N1000-D24-f32-forward-cpu", 2 * 24, False),
    ],
)
def test_a_pass_needs_its_input_its_weights_and_its_output(
    name: str, beside: int, weights: bool
) -> None:
    known, one = Registry(), parse(name)
    size = size_of(one)
    own = known.mechanism(one.mechanism).parameters
    assert own is not None
    numbers = 2 * 1000 * 24 + beside + (own(size) if weights else 0)
    assert least_bytes(one, known) == size.item_bytes * numbers


def test_and_what_a_formula_of_the_implementation_says() -> None:
    known, one = Registry(), parse("multi_head.matmul-B2-N1000-D24x48-H4-f32-training-cpu")
    mechanism, implementation = known.find("multi_head.matmul")
    size = size_of(one)
    assert implementation.transient_bytes is not None
    assert mechanism.parameters is not None
    held = implementation.transient_bytes(size)
    assert held > 2 * 4 * 4 * 1000**2  # two maps of every head
    assert least_bytes(one, known) == held + 4 * (2 * 1000 * 24 + mechanism.parameters(size))


@pytest.mark.parametrize(
    ("device", "million", "fits"), [("cpu", 4, False), ("cuda", 40, False), ("cuda", 4, True)]
)
def test_on_a_gpu_only_what_is_drawn_on_the_host_counts(
    monkeypatch: pytest.MonkeyPatch, device: str, million: int, fits: bool
) -> None:
    monkeypatch.setattr(devices, "machine_memory", lambda: 32 * GIB)
    one = case("multi_head.matmul", million * 2**20, heads=4)
    one = replace(one, problem=replace(one.problem, batch=10, device=device))
    assert (without_room(one, Registry()) is None) is fits


def test_a_size_beyond_the_machine_is_oom_at_once_in_a_bench(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = made_up(tmp_path)
    machine = int(least_bytes(session.cases[0], session.registry))
    assert machine < least_bytes(case("multi_cnn.conv"), session.registry)
    monkeypatch.setattr(devices, "machine_memory", lambda: machine)
    blocks.run(session, ignore, {})
    found = [r for r in journal.read(tmp_path).records if r["kind"] in ("time", "memory", "margin")]
    ended = {(r["case"].partition("-")[0], r["status"]) for r in found}
    assert ended == {("multi_head.sdpa", "ok"), ("multi_cnn.conv", "oom")}
    (first, *_) = (r for r in found if r["status"] == "oom")
    assert first["detail"].startswith("by the formulas it needs ")
    assert (first["task_seconds"], first["machine_bytes"]) == (0, machine)
    assert first["least_bytes"] > machine


def test_a_case_is_timed_beside_its_baseline_unless_that_is_refused(tmp_path: Path) -> None:
    session = made_up(tmp_path)
    base, control, other = session.cases

    def beside() -> dict[str, str | None]:
        return {t.case.id: t.beside for t in session.tasks()[0] if t.kind == "time"}

    assert beside() == {base.id: None, control.id: base.id, other.id: base.id}
    session.keep([control, other])
    assert beside() == {control.id: None, other.id: None}


def test_so_it_is_in_a_search_of_the_frontier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ask(child: Any, function: str, arguments: dict[str, Any], *rest: Any) -> Outcome:
        asked.append(parse(arguments["case"]).problem.length)
        return Outcome("ok", {"peak_bytes": 1, "pass_seconds": 0.1})

    monkeypatch.setattr(call, "Interpreter", lambda *_, **__: nullcontext())
    monkeypatch.setattr(call, "ask", ask)
    monkeypatch.setattr(devices, "machine_memory", lambda: 2**20)
    bounds = Bounds(memory_bytes=2**30, seconds=2.0, largest=2**40)
    one = case("none.plain")
    (found,) = Search([one], bounds, Registry(), tmp_path, FINGERPRINT).run({})
    assert found.why == "oom"
    assert "this machine has 0.0 GiB: not run" in found.detail
    assert max(asked) == found.frontier.longest
    longest = replace(one, problem=replace(one.problem, length=max(asked)))
    assert least_bytes(longest, Registry()) <= 2**20
