"""The longest sequence that fits: the search, its limits, its records, the command."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.case import parse
from harness.errors import UsageError
from harness.isolate import Outcome
from harness.measure import call
from harness.measure.bisection import BEYOND, next_length, resolution, stand
from harness.measure.frontier import Bounds, Search, judge, refuse_beyond
from harness.records import journal
from harness.registry import Registry
from suites.support.sessions import FINGERPRINT, case

MIB = 2**20


def search(fits: Callable[[int], bool], guess: int, largest: int = 2**17) -> dict[int, bool]:
    """All lengths that are tried."""
    tried: dict[int, bool] = {}
    while (length := next_length(tried, guess, largest)) is not None:
        assert 1 <= length <= largest
        assert length not in tried, "probed twice"
        tried[length] = fits(length)
        assert len(tried) < 60
    return tried


@pytest.mark.parametrize("guess", [1, 16, 250, 3000, 10**6])
@pytest.mark.parametrize("edge", [1, 2, 7, 15, 16, 17, 40, 100, 255, 1000, 4097, 60_000])
def test_the_frontier_is_found_to_the_resolution(edge: int, guess: int) -> None:
    tried = search(lambda n: n <= edge, guess)
    found = stand(tried)
    assert found.longest is not None
    assert found.first_miss is not None
    assert found.longest <= edge < found.first_miss
    assert found.first_miss - found.longest <= max(1, resolution(found.longest))
    assert found.not_monotone == ()
    misses = [n for n, fits in tried.items() if not fits]
    assert len(misses) > 1 or found.first_miss >= BEYOND * found.longest - 16


@pytest.mark.parametrize("edge", [300, 3000, 30_000])
def test_a_good_guess_saves_probes(edge: int) -> None:
    good = len(search(lambda n: n <= edge, int(0.97 * edge)))
    assert good <= 5
    assert good < len(search(lambda n: n <= edge, 16))


def test_where_nothing_fits_and_where_everything_does() -> None:
    assert stand(search(lambda n: False, 500)).longest is None
    everything = stand(search(lambda n: True, 500, largest=9000))
    assert (everything.longest, everything.first_miss) == (9000, None)


def test_an_accident_is_found_out_and_reported() -> None:
    accidents: set[int] = set()

    def fits(n: int) -> bool:
        if 1100 < n <= 1200 and not accidents:
            accidents.add(n)
            return False
        return n <= 2000

    found = stand(search(fits, 900))
    assert accidents
    assert found.longest is not None
    assert 1900 <= found.longest <= 2000
    assert set(found.not_monotone) == accidents


BOUNDS = Bounds(memory_bytes=100 * MIB, seconds=2.0, largest=4096)


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        (Outcome("ok", {"peak_bytes": 100 * MIB, "pass_seconds": 2.0}), "ok", ""),
        (
            Outcome("ok", {"peak_bytes": 120 * MIB, "pass_seconds": 0.1}),
            "oom",
            "120.0 MiB, the limit 100.0 MiB",
        ),
        (Outcome("ok", {"peak_bytes": MIB, "pass_seconds": 2.1}), "timeout", "2.1 s"),
        (Outcome("oom", None, "MemoryError: x"), "oom", "MemoryError"),
        (Outcome("timeout", None, "no result after 38 s"), "timeout", "no result"),
        (Outcome("crash", None, "3 heads", error="usage"), "unsupported", "3 heads"),
        (Outcome("crash", None, "killed by SIGSEGV"), "crash", "SIGSEGV"),
        (Outcome("wrong", None, "output is not finite"), "wrong", "finite"),
    ],
)
def test_a_probe_is_judged_by_what_it_measured(outcome: Outcome, status: str, words: str) -> None:
    record = judge(outcome, BOUNDS)
    assert record["status"] == status
    assert words in record["detail"]


def test_more_than_nine_tenths_of_what_is_free_is_refused() -> None:
    refuse_beyond(900 * MIB, 1000 * MIB)
    with pytest.raises(UsageError, match="smaller --memory"):
        refuse_beyond(901 * MIB, 1000 * MIB)


def test_every_probe_is_recorded_and_none_is_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One case fits up to 1000 tokens, one dies beyond 300, one can't be run at all."""
    asked: list[str] = []

    def ask(child: Any, function: str, arguments: dict[str, Any], *rest: Any) -> Outcome:
        asked.append(arguments["case"])
        probed = parse(arguments["case"])
        name, length = probed.name, probed.problem.length
        if name == "bi_lstm.plain":
            return Outcome("unsupported", None, "not here")
        if name == "multi_cnn.conv" and length > 300:
            return Outcome("crash", None, "killed by SIGSEGV")
        return Outcome("ok", {"peak_bytes": length * MIB // 10, "pass_seconds": 0.1})

    monkeypatch.setattr(call, "Interpreter", lambda *_, **__: nullcontext())
    monkeypatch.setattr(call, "ask", ask)
    cases = [case(name) for name in ("none.fused", "multi_cnn.conv", "bi_lstm.plain")]
    found = []
    for _ in range(2):
        searching = Search(cases, BOUNDS, Registry(), tmp_path, FINGERPRINT)
        found.append(searching.run({}))
    whole, dies, not_here = found[0]
    assert whole.why == "oom"
    assert 950 <= (whole.frontier.longest or 0) <= 1000
    assert (dies.why, dies.failed(), dies.detail) == ("crash", True, "killed by SIGSEGV")
    assert (not_here.longest, not_here.why) == (None, "unsupported")
    # A crash may be chance: it alone is tried again.
    again = asked[len(asked) - searching.probed :]
    assert {name.partition(".")[0] for name in again} == {"multi_cnn"}
    assert [r.frontier for r in found[1]] == [r.frontier for r in found[0]]
    kept = [r for r in journal.read(tmp_path).records if r["status"] == "ok"]
    assert {r["memory_limit_bytes"] for r in kept} == {BOUNDS.memory_bytes}
