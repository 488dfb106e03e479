"""What the facts of a machine mean for measuring on it; pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.doctor.facts import Attempt, Facts
from harness.measure.gpu import named

State = Literal["ok", "note", "bad"]
LEAST_FREE = 2 * 2**30
"""Bytes of memory and of disk below which runs fail."""
BUSY = 0.1
"""Share of the cores in use by others above which times are those of a shared machine."""
GPU_BUSY = 5
"""Per cent of a GPU in use by others, alike."""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at, what was found, and what to do, if anything.

    ``note``: something can't be measured here, or less well; ``bad``: what was asked for can't.
    """

    what: str
    state: State
    found: str
    advice: str = ""


def judge(facts: Facts) -> list[Diagnosis]:
    """Everything that was looked at, in the order in which it is needed."""
    return [found for check in CHECKS for found in check(facts)]


def _judged(what: str, fault: object, found: str, advice: str, state: State = "bad") -> Diagnosis:
    """Fine without a fault; with one it has this state, and advice."""
    return Diagnosis(what, state, found, advice) if fault else Diagnosis(what, "ok", found)


def _torch(facts: Facts) -> Iterator[Diagnosis]:
    built = facts.torch["built"]
    found = f"torch {facts.torch['torch']}, {f'for CUDA {built}' if built else 'without CUDA'}"
    known = facts.driver_cuda
    newest = f"the driver does up to {_dotted(known)}" if known else "pip install torch on Linux"
    advice = f"install a build of torch for CUDA ({newest}), or use --device cpu"
    fault = facts.on_gpu and not built
    yield _judged("torch", fault, f"{found}, Python {facts.python}", advice)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _driver(facts: Facts) -> Iterator[Diagnosis]:
    if not facts.driver:
        wanted = facts.device == "cuda"
        found = "no NVIDIA driver" + ("" if wanted else ": the CPU is measured")
        advice = "install NVIDIA's driver, or use --device cpu"
        yield _judged("driver", wanted, found, advice)
        return
    cuda = f", CUDA up to {_dotted(facts.driver_cuda)}" if facts.driver_cuda else ""
    built = facts.torch["built"]
    # Within one major version a driver runs what newer toolkits made (CUDA's minor compatibility).
    old = built and facts.driver_cuda and facts.driver_cuda[0] < int(built.split(".")[0])
    advice = (
        f"torch is built for CUDA {built}: update the driver, or install a build of torch for "
        f"CUDA {_dotted(facts.driver_cuda)} or older"
    )
    state: State = "bad" if facts.on_gpu else "note"
    yield _judged("driver", old, f"NVIDIA driver {facts.driver}{cuda}", advice, state)


def _gpu(facts: Facts) -> Iterator[Diagnosis]:
    seen = facts.torch["gpus"]
    asked: State = "bad" if facts.device == "cuda" else "note"
    state: State = "bad" if facts.on_gpu else "note"
    names = ", ".join(facts.gpus or [one["name"] for one in seen])
    if not names:
        if facts.driver:
            # As `bench`, which does not measure the CPU of such a machine unasked.
            lost: State = "bad" if facts.device == "auto" and not facts.hidden else asked
            advice = "give the container or the machine a GPU, or use --device cpu"
            yield Diagnosis("GPU", lost, "a driver, and no GPU", advice)
        return
    if facts.hidden:
        advice = "unset CUDA_VISIBLE_DEVICES to measure it"
        yield Diagnosis("GPU", asked, f"{names}, hidden by CUDA_VISIBLE_DEVICES", advice)
        return
    if not seen:
        why = f": {facts.torch['error']}" if facts.torch["error"] else ""
        advice = "mend driver or torch as said above, or use --device cpu"
        yield Diagnosis("GPU", state, f"{names}, which torch does not see{why}", advice)
    for one in seen:
        major, minor = one["capability"]
        found = (
            f"{one['name']}, sm_{major}{minor}, {one['free_bytes'] / 2**30:.1f} of "
            f"{one['bytes'] / 2**30:.1f} GiB free, {one['shared_bytes'] // 1024} KiB of shared "
            "memory a multiprocessor"
        )
        archs = ", ".join(facts.torch["archs"])
        advice = f"torch has code for {archs}: install another build of torch"
        yield _judged("GPU", not _has_code(facts, major, minor), found, advice, state)


def _has_code(facts: Facts, major: int, minor: int) -> bool:
    """Whether torch has machine code of the same major version, or code that is compiled later."""
    for arch in facts.torch["archs"]:
        kind, _, number = arch.partition("_")
        digits = "".join(c for c in number if c.isdigit())
        if not digits:
            continue
        built = int(digits[:-1]), int(digits[-1])
        if kind == "compute" and built <= (major, minor):
            return True
        if kind == "sm" and built[0] == major and built[1] <= minor:
            return True
    return False


def _clocks(facts: Facts) -> Iterator[Diagnosis]:
    state = facts.state
    if not state or not facts.torch["gpus"]:
        return
    found = f"{state.get('sm_mhz')} of {state.get('most_sm_mhz')} MHz, {state.get('celsius')} C"
    bits = state.get("throttle_reasons")
    lowered = ", ".join(named(bits)) if isinstance(bits, int) else ""
    found += f": {lowered}" if lowered else ""
    advice = "wait until it is cool, or lower the power limit for all measurements alike"
    yield _judged("clocks", lowered, found, advice, "note")


def _compilers(facts: Facts) -> Iterator[Diagnosis]:
    if facts.on_gpu:
        advice = "install gcc or set CC: Triton compiles with it, and every kernel would crash"
        yield _judged("C compiler", not facts.c, facts.c or "none", advice)
        found = "Python.h" if facts.headers else "no Python.h"
        advice = "install python3-dev: Triton compiles with Python.h"
        yield _judged("Python headers", not facts.headers, found, advice)
        if facts.triton:
            found = f"Triton {facts.triton}, {facts.ptxas or 'without ptxas'}"
            advice = "install triton again, or set TRITON_PTXAS_PATH"
        else:
            found, advice = "not installed", "pip install triton (it comes with torch for CUDA)"
        yield _judged("Triton", not (facts.triton and facts.ptxas), found, advice)
    lost = "the native kernels and compiled code on the CPU"
    advice = f"install g++ or set CXX: without it {lost} are left out"
    yield _judged("C++ compiler", not facts.cxx, facts.cxx or "none", advice, "note")


def _work(facts: Facts) -> Iterator[Diagnosis]:
    def done(what: str, tried: Attempt | None, advice: str, state: State) -> Iterator[Diagnosis]:
        if tried is not None:
            place = {"cpu": "CPU", "cuda": "GPU"}[facts.works_on]
            found = tried.error or f"right, {tried.seconds:.1f} s on the {place}"
            yield _judged(what, tried.error, found, advice, state)

    # Compiled settings are left out where nothing compiles; wrong kernels must not be measured.
    state: State = "note" if not facts.cxx and not facts.on_gpu else "bad"
    yield from done("one compilation", facts.compiled, "mend the compiler said above", state)
    advice = "attnbench verify mtsa tells more; nothing is measured that is not right"
    yield from done("one checked launch", facts.launched, advice, "bad")


def _folders(facts: Facts) -> Iterator[Diagnosis]:
    if facts.data_error:
        yield Diagnosis("data folder", "bad", facts.data_error)
    elif facts.data:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(facts.files.items()))
        found, advice = f"{facts.data}: files {counts}", "attnbench data check names them"
        useless = facts.files.get("wrong") or facts.files.keys() <= {"missing"}
        yield _judged("data folder", useless, found, advice)
    elif facts.compiled is not None:
        found = "none named: training on real corpora needs one"
        yield Diagnosis("data folder", "ok", f"{found} (docs/data.md)")
    fault = facts.journal_error
    found = f"can't write {fault}" if fault else f"{facts.journal} can be written"
    yield _judged("results", fault, found, "choose a folder of yours with --journal")


def _room(facts: Facts) -> Iterator[Diagnosis]:
    advice = f"free some: runs need {LEAST_FREE // 2**30} GiB or more"
    for what, free in (("memory", facts.memory), ("disk", facts.disk)):
        if free is not None:
            yield _judged(what, free < LEAST_FREE, f"{free / 2**30:.1f} GiB free", advice)


def _quiet(facts: Facts) -> Iterator[Diagnosis]:
    if facts.busy is not None:
        found = f"others use {100 * facts.busy:.0f} % of the cores"
        advice = "stop other work: ratios stay right, their intervals become wide"
        yield _judged("quiet", facts.busy > BUSY, found, advice, "note")
    used, others = facts.state.get("busy_percent"), facts.state.get("processes")
    if facts.on_gpu and isinstance(used, int):
        found = f"GPU {used} % busy, {others} other processes on it"
        advice = "stop other work on it, or choose another by CUDA_VISIBLE_DEVICES"
        yield _judged("quiet GPU", used > GPU_BUSY or others, found, advice, "note")


CHECKS: tuple[Callable[[Facts], Iterator[Diagnosis]], ...] = (
    *(_torch, _driver, _gpu, _clocks, _compilers, _work, _folders, _room, _quiet),
)
