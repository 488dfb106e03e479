"""``attnbench bench``: plan, verify, measure through pytest, conclude."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.case import parse
from harness.cli.display import ratio_table, tell_gpu
from harness.cli.doctor import tell_unready
from harness.cli.output import console, duration, say, tell_skipped
from harness.cli.verify import verified
from harness.doctor.checks import judge
from harness.doctor.facts import gather
from harness.errors import UsageError
from harness.json_file import write_json
from harness.measure.ceilings import impossible
from harness.measure.session import Session, make_session
from harness.options.measure import BenchOptions
from harness.records import journal
from harness.records.gpu import gpu_readings
from harness.records.ratios import Row
from harness.records.schema import cpu_threads
from harness.records.sharing import at_work
from harness.verify.run import fitting
from reports.core.crossovers import crossovers
from reports.core.sentences import closing, drift_sentences
from reports.pages.bench import write_page

SUITE = "suites.bench"
"""What pytest-benchmark runs; by its name alone, so that nothing of the harness stands on it."""


class SessionPlugin:
    """Hands the planned session to the bench suite, so that it is not planned twice."""

    def __init__(self, session: Session) -> None:
        self.attnbench_session = session

    def pytest_configure(self, config: Any) -> None:
        """Keep pytest's plug-ins at hand."""
        self._plugins = config.pluginmanager

    def pytest_keyboard_interrupt(self) -> None:
        """Leave pytest nothing to say of a stop, which `bench` tells in its own words."""
        self._plugins.unregister(name="terminalreporter")


def _plan_line(session: Session) -> str:
    f = session.fingerprint
    profile = session.profile
    total = sum(len(tasks) for tasks in session.tasks())
    missing = session.missing()
    have = f", {total - missing} of them already there" if missing < total else ""
    return (
        f"{f['model']} ({f['device']}, {cpu_threads(f)}), "
        f"torch {f['torch']}: profile {profile.name}, {len(session.cases)} cases in "
        f"{profile.blocks} blocks, {total} measurements{have}; baseline {profile.baseline}; "
        f"journal {session.folder}; {_end(session, missing)}"
    )


def _end(session: Session, missing: int) -> str:
    """When it will be done, as far as the journal tells."""
    if not missing:
        return "nothing is left to measure"
    seconds = session.predict()
    if seconds is None:
        return "the end is predicted after the first block"
    budget = session.profile.budget_seconds
    cut = "" if budget is None or seconds <= budget else f", cut at {duration(budget)}"
    return f"measuring the rest will take about {duration(seconds)}{cut}"


def _refuse(session: Session, rows: Sequence[dict[str, Any]], out: Console) -> int:
    """Take out what is not right: it is not measured. Returns how many were refused."""
    bad = {(r["name"], r["dtype"]): r for r in rows if r["verdict"] not in ("ok", "unsupported")}
    for (name, dtype), row in bad.items():
        text = f"{name} {dtype} is not measured: {row['verdict']}: {row['detail']}"
        say(out, text, "bold red")
    kept = []
    for c in session.cases:
        why = bad.get((f"{c.mechanism}.{c.implementation}", c.problem.dtype))
        if why is None:
            kept.append(c)
        elif not c.is_control:
            session.refused[c] = why["verdict"], why["detail"]
    session.keep(kept)
    return len(bad)


def _pytest(session: Session, extra: list[str]) -> int:
    """Run the bench suite; returns our exit code."""
    import pytest

    found = importlib.util.find_spec(SUITE)
    if found is None or found.origin is None:
        raise UsageError(f"package {SUITE} is missing; install attnbench again")
    folder = Path(found.origin).parent
    arguments = [str(folder), "-q", "--no-header", "-p", "no:cacheprovider", *extra]
    if not any(e.startswith(("--benchmark", "-v")) for e in extra):
        arguments += ["--benchmark-quiet", "--no-summary"]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors) if extra else contextlib.nullcontext():
        code = int(pytest.main(arguments, plugins=[SessionPlugin(session)]))
    if session.error is not None:
        raise session.error
    if session.failure:
        raise UsageError(session.failure)
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code == pytest.ExitCode.USAGE_ERROR:
        told = [s for s in errors.getvalue().splitlines() if "error" in s.lower()]
        raise UsageError(f"pytest: {told[-1].removeprefix('ERROR: ') if told else 'usage error'}")
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise UsageError("nothing to measure: the selection left no case")
    return code


def subject(session: Session) -> str | None:
    """Whom the closing sentences are about."""
    names = list(dict.fromkeys(c.name for c in [*session.cases, *session.refused]))
    given = [n for n in names if n.partition(".")[0] in session.registry.given_names]
    if given:
        return given[0]
    if session.profile.subject in names:
        return str(session.profile.subject)
    return next((n for n in names if n != session.profile.baseline), None)


def _failed_readings(session: Session, rows: Sequence[Row]) -> list[str]:
    """A line for every margin, memory reading, ceiling or count that could not be taken, and why.

    But not of a case that has no time either: its own line says why. Then for every case of which
    no timed call could be computed again.
    """
    known = [r for r in session.records() if r["kind"] in ("margin", "memory", "peaks")]
    failed = {row.case for row in rows if row.status != "ok"}
    lines = [
        f"no {r['kind']} of {r['case']}: {r['status']}: {r.get('detail', '')}"
        for r in known
        if r["status"] not in ("ok", "wrong") and r["case"] not in failed
    ]
    lines += [
        f"launches of {parse(r['case']).name} were not counted: {r['uncounted']}"
        for r in known
        if r.get("uncounted") and r["case"] not in failed
    ]
    why = {r["case"]: r["unchecked"] for r in session.records() if r.get("unchecked")}
    lines += [f"timed calls of {case} were not computed again: {why[case]}" for case in why]
    return list(dict.fromkeys(lines))  # once for all blocks; a count, once for all sizes


def _conclude(
    session: Session,
    checked: Sequence[dict[str, Any]],
    out: Console,
    json_file: str | None,
    seconds: float,
) -> list[str]:
    """Final table, four sentences, what drifted, where the `seconds` of measuring went, page.

    Returns why verdicts are withheld, a line each.
    """
    rows, profile = session.rows(), session.profile
    out.print(ratio_table(rows, f"ratios to {profile.baseline}", out.width))
    on_gpu = gpu_readings(session.records())
    tell_gpu(on_gpu, rows, out)
    tell_skipped(out, journal.read(session.folder).warnings)
    if session.stopped_after is not None:
        out.print(
            f"stopped after {session.stopped_after} of {profile.blocks} blocks: the "
            f"{profile.budget_seconds:.0f} s of profile {profile.name} are over; "
            "the same command goes on"
        )
    name = subject(session)
    size = {**profile.reference, "settings": profile.setting}
    sentences = closing(rows, name, profile.baseline, size) if name else []
    out.print()
    for sentence in sentences:
        out.print(sentence, highlight=False, markup=False)
    withheld = impossible(rows)
    for line in withheld:
        say(out, line, "bold red")
    drifts = session.drift()
    moved = drift_sentences(drifts, rows, profile.baseline)
    failed = [f"{r.case}: {r.status}: {r.detail}" for r in rows if r.status != "ok"]
    for line in [*failed, *moved, *_failed_readings(session, rows)]:
        say(out, line)
    cost = session.cost()
    if cost is not None:
        cost = cost.within(seconds)
        say(out, f"where the time went: {cost}")
    try:
        page = write_page(
            session.folder, session.fingerprint, profile.baseline, sentences, rows, checked, on_gpu
        )
    except OSError as error:
        raise UsageError(
            f"can't write the page in {session.folder}: {error.strerror}; the records are kept"
        ) from None
    say(out, f"page with the figures: {page}")
    write_json(
        json_file,
        {
            "fingerprint": dict(session.fingerprint),
            "baseline": profile.baseline,
            "sentences": sentences,
            "withheld": withheld,
            "crossovers": crossovers(rows),
            "drift": {"says": moved, "machine": [asdict(d) for d in drifts]},
            "cost": cost and cost.as_json(),
            "page": str(page),
            "rows": [asdict(r) for r in rows],
            "gpu": [asdict(r) for r in on_gpu],
            "verified": list(checked),
        },
    )
    return withheld


def run_bench(options: BenchOptions) -> int:
    """Do all of it; returns the exit code."""
    out = console()
    begun = time.monotonic()
    session = make_session(options)
    say(out, _plan_line(session))
    if options.dry_run:
        cases = [case.id for case in session.cases]
        for case in cases:
            say(out, case)
        seconds = session.predict() if session.missing() else 0.0
        write_json(options.json_file, {"cases": cases, "predicted_seconds": seconds})
        return 0
    tell_unready(judge(gather(options.device, options.journal, quick=True)), out)
    planned = time.monotonic() - begun
    with at_work(session.folder, "bench", alone=True):
        return _bench(session, options, out, planned)


def _bench(session: Session, options: BenchOptions, out: Console, planned: float) -> int:
    """Verify, measure and conclude what took `planned` seconds to plan; returns the exit code."""
    named = [(f"{c.mechanism}.{c.implementation}", c) for c in session.cases]
    wanted = [
        (name, c.problem.dtype, fitting(name, c.options, c.problem.heads, session.registry))
        for name, c in named
    ]
    try:
        checked = verified(wanted, session.registry, session.fingerprint, session.folder, out)
    except KeyboardInterrupt:
        say(
            out,
            f"stopped while verifying; what is finished is in {session.folder}: "
            "the same command goes on from there",
        )
        raise
    refused = _refuse(session, checked, out)
    if not session.cases or all(c.name == session.profile.baseline for c in session.cases):
        out.print("nothing is left to measure beside the baseline")
        _conclude(session, checked, out, options.json_file, planned)
        return 1
    begun = time.monotonic()
    code = _pytest(session, list(options.extra))
    if code not in (0, 1):
        return 1
    # Verifying is work of another kind; planning and replaying are what the harness costs.
    seconds = planned + time.monotonic() - begun
    withheld = _conclude(session, checked, out, options.json_file, seconds)
    return 1 if refused or code or withheld else 0
