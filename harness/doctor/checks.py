"""What the facts of a machine mean for measuring on it; pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.doctor.facts import Attempt, Facts

State = Literal["ok", "note", "bad"]
LEAST_FREE = 2 * 2**30
"""Bytes of memory and of disk below which runs fail."""
BUSY = 0.1
"""Share of the cores in use by others above which times are those of a shared machine."""
GPU_BUSY = 5
"""Per cent of a GPU in use by others, alike."""
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
"""NVML's reasons for lower clocks that change a measurement; idle and set clocks are none."""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at.

    Attributes
    ----------
    what : str
    state : {"ok", "note", "bad"}
        ``note``: something can't be measured here, or less well; ``bad``: what was asked for can't.
    found : str
    advice : str
        What to do; empty where nothing is to be done.
    """

    what: str
    state: State
    found: str
    advice: str = ""


def judge(facts: Facts) -> list[Diagnosis]:
    """Everything that was looked at, in the order in which it is needed."""
    return [found for check in CHECKS for found in check(facts)]


def _torch(facts: Facts) -> Iterator[Diagnosis]:
    built = facts.torch["built"]
    found = f"torch {facts.torch['torch']}, {f'for CUDA {built}' if built else 'without CUDA'}"
    found += f", Python {facts.python}"
    if facts.on_gpu and not built:
        advice = f"install a build of torch for CUDA ({_newest(facts)}), or use --device cpu"
        yield Diagnosis("torch", "bad", found, advice)
    else:
        yield Diagnosis("torch", "ok", found)


def _newest(facts: Facts) -> str:
    known = facts.driver_cuda
    return f"the driver does up to {_dotted(known)}" if known else "pip install torch on Linux"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _driver(facts: Facts) -> Iterator[Diagnosis]:
    if not facts.driver:
        if facts.device == "cuda":
            advice = "install NVIDIA's driver, or use --device cpu"
            yield Diagnosis("driver", "bad", "no NVIDIA driver", advice)
        else:
            yield Diagnosis("driver", "ok", "no NVIDIA driver: the CPU is measured")
        return
    cuda = f", CUDA up to {_dotted(facts.driver_cuda)}" if facts.driver_cuda else ""
    found = f"NVIDIA driver {facts.driver}{cuda}"
    built = facts.torch["built"]
    # Within one major version a driver runs what newer toolkits made (CUDA's minor compatibility).
    if built and facts.driver_cuda and facts.driver_cuda[0] < int(built.split(".")[0]):
        advice = (
            f"torch is built for CUDA {built}: update the driver, or install a build of torch for "
            f"CUDA {_dotted(facts.driver_cuda)} or older"
        )
        yield Diagnosis("driver", "bad" if facts.on_gpu else "note", found, advice)
    else:
        yield Diagnosis("driver", "ok", found)


def _gpu(facts: Facts) -> Iterator[Diagnosis]:
    seen = facts.torch["gpus"]
    if not facts.gpus and not seen:
        if facts.driver:
            advice = "give the container or the machine a GPU, or use --device cpu"
            state: State = "bad" if facts.device == "cuda" else "note"
            yield Diagnosis("GPU", state, "a driver, and no GPU", advice)
        return
    names = ", ".join(facts.gpus or [one["name"] for one in seen])
    if facts.hidden:
        state = "bad" if facts.device == "cuda" else "note"
        advice = "unset CUDA_VISIBLE_DEVICES to measure it"
        yield Diagnosis("GPU", state, f"{names}, hidden by CUDA_VISIBLE_DEVICES", advice)
        return
    if not seen:
        why = f": {facts.torch['error']}" if facts.torch["error"] else ""
        advice = "mend driver or torch as said above, or use --device cpu"
        state = "bad" if facts.on_gpu else "note"
        yield Diagnosis("GPU", state, f"{names}, which torch does not see{why}", advice)
        return
    for one in seen:
        major, minor = one["capability"]
        found = (
            f"{one['name']}, sm_{major}{minor}, {one['free_bytes'] / 2**30:.1f} of "
            f"{one['bytes'] / 2**30:.1f} GiB free, {one['shared_bytes'] // 1024} KiB of shared "
            "memory a multiprocessor"
        )
        if _has_code(facts, major, minor):
            yield Diagnosis("GPU", "ok", found)
        else:
            archs = ", ".join(facts.torch["archs"])
            advice = f"torch has code for {archs}: install another build of torch"
            yield Diagnosis("GPU", "bad" if facts.on_gpu else "note", found, advice)


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
    if not facts.state or not facts.torch["gpus"]:
        return
    state = facts.state
    found = f"{state.get('sm_mhz')} of {state.get('most_sm_mhz')} MHz, {state.get('celsius')} C"
    reasons = state.get("throttle_reasons")
    if isinstance(reasons, int):
        named = [name for bit, name in THROTTLES.items() if reasons & bit]
        if named:
            advice = "wait until it is cool, or lower the power limit for all measurements alike"
            yield Diagnosis("clocks", "note", f"{found}: {', '.join(named)}", advice)
            return
    yield Diagnosis("clocks", "ok", found)


def _compilers(facts: Facts) -> Iterator[Diagnosis]:
    cuda = facts.on_gpu
    if cuda:
        if not facts.c:
            advice = "install gcc or set CC: Triton compiles with it, and every kernel would crash"
            yield Diagnosis("C compiler", "bad", "none", advice)
        else:
            yield Diagnosis("C compiler", "ok", facts.c)
        if not facts.headers:
            advice = "install python3-dev: Triton compiles with Python.h"
            yield Diagnosis("Python headers", "bad", "no Python.h", advice)
        else:
            yield Diagnosis("Python headers", "ok", "Python.h")
        if not facts.triton:
            advice = "pip install triton (it comes with torch for CUDA)"
            yield Diagnosis("Triton", "bad", "not installed", advice)
        elif not facts.ptxas:
            advice = "install triton again, or set TRITON_PTXAS_PATH"
            yield Diagnosis("Triton", "bad", f"Triton {facts.triton}, without ptxas", advice)
        else:
            yield Diagnosis("Triton", "ok", f"Triton {facts.triton}, {facts.ptxas}")
    if not facts.cxx:
        lost = "the native kernels and compiled code on the CPU"
        advice = f"install g++ or set CXX: without it {lost} are left out"
        yield Diagnosis("C++ compiler", "note", "none", advice)
    else:
        yield Diagnosis("C++ compiler", "ok", facts.cxx)


def _done(what: str, tried: Attempt | None, advice: str, state: State) -> Iterator[Diagnosis]:
    if tried is None:
        return
    if tried.error:
        yield Diagnosis(what, state, tried.error, advice)
    else:
        yield Diagnosis(what, "ok", f"right, {tried.seconds:.1f} s")


def _work(facts: Facts) -> Iterator[Diagnosis]:
    # Compiled settings are left out where nothing compiles; wrong kernels must not be measured.
    state: State = "note" if not facts.cxx and not facts.on_gpu else "bad"
    yield from _done("one compilation", facts.compiled, "mend the compiler said above", state)
    advice = "attnbench verify mtsa tells more; nothing is measured that is not right"
    yield from _done("one checked launch", facts.launched, advice, "bad")


def _folders(facts: Facts) -> Iterator[Diagnosis]:
    if facts.data_error:
        yield Diagnosis("data folder", "bad", facts.data_error)
    elif not facts.data:
        if facts.compiled is not None:
            found = "none named: training on real corpora needs one"
            yield Diagnosis("data folder", "ok", f"{found} (docs/data.md)")
    else:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(facts.files.items()))
        state: State = "bad" if facts.files.get("wrong") else "ok"
        advice = "attnbench data check names them" if state == "bad" else ""
        yield Diagnosis("data folder", state, f"{facts.data}: files {counts}", advice)
    if facts.journal_error:
        advice = "choose a folder of yours with --journal"
        yield Diagnosis("results", "bad", f"can't write {facts.journal_error}", advice)
    else:
        yield Diagnosis("results", "ok", f"{facts.journal} can be written")


def _room(facts: Facts) -> Iterator[Diagnosis]:
    for what, free in (("memory", facts.memory), ("disk", facts.disk)):
        if free is None:
            continue
        found = f"{free / 2**30:.1f} GiB free"
        if free < LEAST_FREE:
            advice = f"free some: runs need {LEAST_FREE // 2**30} GiB or more"
            yield Diagnosis(what, "bad", found, advice)
        else:
            yield Diagnosis(what, "ok", found)


def _quiet(facts: Facts) -> Iterator[Diagnosis]:
    if facts.busy is not None:
        found = f"others use {100 * facts.busy:.0f} % of the cores"
        advice = "stop other work: ratios stay right, their intervals become wide"
        loud = facts.busy > BUSY
        yield Diagnosis("quiet", "note" if loud else "ok", found, advice if loud else "")
    used, others = facts.state.get("busy_percent"), facts.state.get("processes")
    if facts.on_gpu and isinstance(used, int):
        loud = used > GPU_BUSY or bool(others)
        found = f"GPU {used} % busy, {others} other processes on it"
        advice = "stop other work on it, or choose another by CUDA_VISIBLE_DEVICES"
        yield Diagnosis("quiet GPU", "note" if loud else "ok", found, advice if loud else "")


CHECKS: tuple[Callable[[Facts], Iterator[Diagnosis]], ...] = (
    _torch,
    _driver,
    _gpu,
    _clocks,
    _compilers,
    _work,
    _folders,
    _room,
    _quiet,
)
