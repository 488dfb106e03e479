"""Modules that win by not doing their work, timed: each is told by the check for its kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import pytest

from harness.build import threads_available
from harness.case import parse
from harness.isolate import Interpreter, Limits, Outcome
from harness.measure import call
from harness.measure.ceilings import gauge_of, with_shares
from harness.measure.checks import CHECKS
from harness.measure.device import device_fingerprint
from harness.registry import Registry
from suites.harness.records.test_ratios import record, rows_of
from suites.support.misbehaving.cheats import CACHE
from suites.support.misbehaving.table import FAMILY, Noticed, without_numbers

TIMED = [one for one in FAMILY if one.command.startswith("bench")]
CORE = Noticed("core:Attention", "bench forward", "", "")
SECOND_CORE = ("cheats:MoreThreads", "cheats:TorchThreads", "cheats:Pins")
LIMITS = Limits(seconds=60)
fingerprint = cache(lambda: device_fingerprint("cpu"))


def case_of(one: Noticed) -> str:
    """The small case at which a module is timed."""
    phase, _, setting = one.command.removeprefix("bench ").partition(" ")
    size = f"B8-N{one.length}-D64-{one.dtype}"
    return f"{one.name}-{size}-{phase}-cpu+1-thread" + (f"+{setting}" if setting else "")


@dataclass(frozen=True)
class Bench:
    """What a session does with a case, in a few samples."""

    child: Interpreter
    ceilings: dict[str, Any]
    """What this machine can do, measured."""

    def timed(self, one: Noticed, skip: Sequence[str] = (), seconds: float = 0.02) -> Outcome:
        """Time a module and have another process compute again what it gave."""
        what = {"case": case_of(one), "given": one.given, "skip": list(skip)}
        # Of under 10 ms of processor time, and of few samples, nothing is said: these take far
        # more, however busy it is.
        seconds = 0.2 if one.check in ("cpu-time", "clock") else seconds
        how = {"seconds": seconds, "rounds": 5, "observe": False, "evidence": True}
        eager = "suites.support.clocked:time_eagerly_compiled"
        task = eager if one.command.endswith("compiled") else call.TIME_CALL
        with mock.patch.object(call, "TIME_CALL", task):
            return call.time(self.child, {**what, **how}, LIMITS, fingerprint(), count=True)

    def told(self, one: Noticed, skip: Sequence[str] = ()) -> tuple[str, str]:
        """By which check its row has no verdict, and why; empty if it has one."""
        outcome = self.timed(one, skip)
        if outcome.status != "ok":
            assert outcome.status in ("wrong", "unsupported"), outcome
            said = outcome.value or {}
            assert "samples" not in said
            return said.get("found_by", ""), outcome.detail
        case, value = case_of(one), outcome.value
        records = [record(case, 0, value["seconds"]) | {"operations": value.get("operations")}]
        gauge = {**record(gauge_of(parse(case)).id, 0, 1.0), "kind": "peaks", **self.ceilings}
        known = Registry(one.given).mechanisms
        (row,) = with_shares(rows_of(records), [*records, gauge], known, skip)
        return row.found_by, row.detail


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    kept = {CACHE: str(tmp_path_factory.mktemp("answers"))}
    with mock.patch.dict(os.environ, kept), call.interpreter("cpu") as child:
        gauge = gauge_of(parse(case_of(CORE))).id
        yield Bench(child, child.run(call.PEAKS_CALL, {"case": gauge}, LIMITS).value)


@pytest.fixture(scope="module")
def full(bench: Bench) -> float:
    """Seconds of the honest attention that all others are, but for one thing."""
    outcome = bench.timed(CORE)
    assert bench.told(CORE) == ("", "")
    return float(outcome.value["seconds"])


def words(reason: str) -> str:
    """Without numbers, and without the name of that gradient which is furthest off."""
    return re.sub(r"gradient of [\w.]+", "gradient of #", without_numbers(reason))


@pytest.mark.parametrize("one", [t for t in TIMED if t.check != "fresh-inputs"], ids=str)
def test_who_does_not_do_the_work_is_told_why(bench: Bench, one: Noticed) -> None:
    if one.module in SECOND_CORE and threads_available() < 2:
        pytest.skip("has no other core")
    if one.module == "cheats:CacheOnDisk":
        assert bench.timed(one, seconds=0.2).status == "ok", "the first finds nothing to read"
    late = "late-values" in one.check
    # A thread that a busy machine lets finish in time hides nothing in that try.
    tries = (bench.told(one) for _ in range(4 if late else 1))
    found_by, reason = next((told for told in tries if told[0]), ("", "never told"))
    assert found_by in one.check.split(" or "), reason
    if not late:  # the scheduler decides what of a thread is seen first
        assert words(reason) == words(one.reason)


@pytest.mark.parametrize("one", [t for t in TIMED if t.check == "fresh-inputs"], ids=str)
def test_answers_that_are_kept_save_nothing(bench: Bench, full: float, one: Noticed) -> None:
    """No input comes twice, so there is nothing to tell: the time is that of the work."""
    assert bench.timed(one).value["seconds"] > 0.5 * full


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "fresh-inputs"])
def test_without_a_check_somebody_passes(bench: Bench, check: str) -> None:
    # On a busy machine another check may stumble over one try: one that passes is enough.
    of_it = (one for _ in range(8) for one in TIMED if one.check == check)
    assert any(bench.told(one, [check]) == ("", "") for one in of_it)


def test_without_looking_at_what_was_replaced_somebody_passes(bench: Bench) -> None:
    of_it = [one for one in TIMED if one.check == "untouched"]
    timing = mock.patch.object(call, "TIME_CALL", "suites.support.clocked:time_trusting")
    checking = mock.patch.object(call, "CHECK_CALL", "suites.support.clocked:check_trusting")
    with call.interpreter("cpu") as child, timing, checking:
        assert any(Bench(child, bench.ceilings).timed(one).status == "ok" for one in of_it)


def test_without_new_inputs_kept_answers_save_the_work(bench: Bench, full: float) -> None:
    (one,) = (t for t in TIMED if t.module == "cheats:MemoByContent")
    found = bench.timed(one, ["fresh-inputs"])
    assert found.status == "ok"
    assert found.value["seconds"] < 0.5 * full
