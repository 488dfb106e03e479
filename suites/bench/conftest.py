"""pytest-benchmark as the front end, by replay.

The cases that pytest selected are measured first, in blocks of fresh interpreters; every test then
replays its samples through pytest-benchmark, so that its table, groups, ``--benchmark-json``,
``--benchmark-compare`` and ``--benchmark-disable`` work as its users know them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from harness.case import Case, problem_of
from harness.cli.display import Display, wide
from harness.errors import UsageError
from harness.measure import blocks, device
from harness.measure.session import Session, make_session
from harness.options.declare import options_for_pytest, read
from harness.options.groups import Measuring
from harness.records.sharing import at_work


class Replay:
    """Replays samples through a timer: `rewind` before a round, the call itself advances.

    The virtual clock starts every round at zero, so that ``end - start`` is the sample to the
    last bit.
    """

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._next = 0
        self._now = 0.0

        def timer() -> float:
            return self._now

        timer.__name__ = timer.__qualname__ = "replayed"
        self.timer: Callable[[], float] = timer

    def load(self, samples: Sequence[float]) -> None:
        """Take the samples to replay, in seconds."""
        self.samples = list(samples)
        self._next = 0

    def rewind(self) -> None:
        """Set the virtual clock to the start of the next round."""
        self._now = 0.0

    def __call__(self) -> None:
        """Advance the clock by the next sample."""
        self._now = self.samples[self._next]
        self._next = (self._next + 1) % len(self.samples)


SESSION = pytest.StashKey[Session]()
REPLAYS = pytest.StashKey[dict[str, Replay]]()

INERT = (
    "--benchmark-min-rounds, --benchmark-max-time, --benchmark-min-time, --benchmark-warmup, "
    "--benchmark-calibration-precision, --benchmark-timer and --benchmark-disable-gc can't act on "
    "replayed samples: use --blocks and --profile"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose cases."""
    group = parser.getgroup("attnbench", f"attnbench: what is measured. {INERT}.")
    for name, keywords in options_for_pytest(Measuring):
        group.addoption(name, **keywords)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what can't work, and plan the session."""
    if config.getoption("benchmark_cprofile", None):
        raise pytest.UsageError(
            "--benchmark-cprofile can't profile replayed samples; profile the module itself"
        )
    if getattr(config, "workerinput", None) or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("xdist would disturb the measuring; run without -n and --dist")
    config.stash[REPLAYS] = {}
    if config.option.help or config.option.version:
        return
    if planned := _planned(config):
        config.stash[SESSION] = planned
        return
    given = {k["dest"]: config.getoption(k["dest"]) for _, k in options_for_pytest(Measuring)}
    try:
        config.stash[SESSION] = make_session(read(Measuring, given))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _planned(config: pytest.Config) -> Session | None:
    """The session that ``attnbench bench`` has planned already, if it is who runs pytest."""
    for plugin in config.pluginmanager.get_plugins():
        session = getattr(plugin, "attnbench_session", None)
        if isinstance(session, Session):
            return session
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case, by id, each with its own replaying timer."""
    if "case" not in metafunc.fixturenames:
        return
    session = metafunc.config.stash[SESSION]
    replays = metafunc.config.stash[REPLAYS]
    parameters = []
    for case in session.cases:
        replay = replays.setdefault(case.id, Replay())
        p = case.problem
        group = f"B{p.batch} N{p.length} D{p.d_in} {p.dtype} {p.phase} {p.device} " + "+".join(
            case.own_settings
        )
        mark = pytest.mark.benchmark(group=group.strip(), timer=replay.timer, warmup=False)
        parameters.append(pytest.param(case, id=case.id, marks=mark))
    metafunc.parametrize("case", parameters)


@pytest.fixture(scope="session")
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Measure the selected cases, outside pytest's capture; give their time records by case."""
    config = request.config
    session = config.stash[SESSION]
    selected = {
        item.callspec.params["case"]
        for item in request.session.items
        if hasattr(item, "callspec") and "case" in item.callspec.params
    }
    session.keep(_with_baselines(session, selected))
    if config.getoption("benchmark_disable"):
        # Only whether it runs: one call each, in a journal that is thrown away.
        session.profile = replace(
            session.profile, blocks=1, memory_blocks=0, min_rounds=1, seconds=0.0
        )
        session.folder = tmp_path_factory.mktemp("journal")
    # `attnbench bench` is at work on it already, if it is who runs pytest.
    alone = nullcontext() if _planned(config) else at_work(session.folder, "bench", alone=True)
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        # Not sys.stderr, which whoever runs pytest may have redirected to read its errors.
        console = wide(Console(file=sys.__stderr__))
        with Display(console, session) as display:
            try:
                with alone:
                    blocks.run(session, display, {"environment": device.environment()})
            except UsageError as error:
                session.failure = str(error)
                pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
            except Exception as error:
                # `attnbench bench` has pytest say little, and would say nothing of this.
                session.error = error
                raise
            except KeyboardInterrupt:
                console.print(
                    f"\nstopped; what is finished is in {session.folder}: "
                    "the same command goes on from there"
                )
                raise
    by_case: dict[str, list[dict[str, Any]]] = {}
    for record in session.records():
        by_case.setdefault(record["case"], []).append(record)
    return by_case


def _with_baselines(session: Session, selected: set[Case]) -> list[Case]:
    """Selected cases and, so that there is a ratio, the baseline and control of their problems."""
    problems = {problem_of(case) for case in selected}
    return [
        case
        for case in session.cases
        if case in selected
        or (case.name == session.profile.baseline and problem_of(case) in problems)
    ]


@pytest.fixture
def replay(case: Case, measured: dict[str, Any], request: pytest.FixtureRequest) -> Replay:
    """The case's samples, ready to be replayed; fails or skips by its status."""
    records = measured.get(case.id, [])
    one = request.config.stash[REPLAYS][case.id]
    for record in records:
        status = record["status"]
        if record["kind"] == "time" or status in ("wrong", "crash"):
            if status in ("oom", "timeout", "unsupported"):
                pytest.skip(f"{status}: {record.get('detail', '')}")
            if status in ("wrong", "crash"):
                pytest.fail(f"{status}: {record.get('detail', '')}", pytrace=False)
    one.load([s for r in records if r["kind"] == "time" for s in r["samples"]])
    return one


def pytest_benchmark_generate_machine_info(config: pytest.Config) -> dict[str, Any]:
    """The fingerprint instead of the driver's own machine."""
    session = config.stash[SESSION]
    return {"fingerprint": dict(session.fingerprint), "fingerprint_id": session.fingerprint_id}


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: Any, output_json: dict[str, Any]
) -> None:
    """Add where the raw records are."""
    output_json["attnbench"] = {"journal": str(config.stash[SESSION].folder.resolve())}
