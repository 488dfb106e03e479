"""What a case sets for its process, and finds there when it has been timed. Runs in children."""

from __future__ import annotations

import ctypes
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from harness.build import cores_available
from harness.isolate.worker import ALLOCATOR
from harness.measure.checks import Meddling, wrong
from harness.measure.cpu_clock import APART, Sampled

SLACK, TICK = 1e-3, 1e-2
"""Seconds that the processor time of all samples may be off, and what each further thread adds in
each of them, now too much, now too little: that of a thread on another core is known as of the
kernel's last tick there."""
_PROBE_BYTES = 2**20
MAPPING = "allocator maps large blocks"
"""Only where the allocator was set: else glibc begins and ends this as it likes. Where it was,
glibc may end it, when a large block is freed; only a module begins it."""


def state(cpu: bool = True) -> dict[str, object]:
    """Everything of this process that changes how torch computes, by a name a reader knows.

    Cores, threads and allocator do on the CPU alone.
    """
    found: dict[str, object] = {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradients on": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "precision of float32 products": _older(torch.get_float32_matmul_precision),
        "TF32 of products": _older(lambda: torch.backends.cuda.matmul.allow_tf32),
        "TF32 of cuDNN": _older(lambda: torch.backends.cudnn.allow_tf32),
        "cuDNN benchmark": torch.backends.cudnn.benchmark,
        "cuDNN deterministic": torch.backends.cudnn.deterministic,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "denormals flushed": not bool(torch.full((1,), 1e-40).mul(1.0).ne(0)),
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "hooks of all modules": torch.nn.modules.module._has_any_global_hook(),
        "modes of all functions": torch._C._len_torch_function_stack(),
        "modes of all operators": torch._C._len_torch_dispatch_stack(),
        "handlers of signals": ", ".join(
            one.name
            for one in signal.Signals
            if not isinstance(signal.getsignal(one), signal.Handlers | None)
        ),
    }
    if cpu:
        cores = cores_available()
        found |= {
            "threads": torch.get_num_threads(),
            "cores": None if cores is None else ranges(cores),
        }
        if ALLOCATOR:
            found[MAPPING] = _maps_large_blocks()
    return found


def _older(setting: Callable[[], object]) -> object:
    """One of torch's older settings of float32; it refuses to be read where a newer one was set."""
    try:
        return setting()
    except RuntimeError:
        return f"fp32_precision {torch.backends.cuda.matmul.fp32_precision}"


def _maps_large_blocks() -> bool | None:
    """Whether malloc takes a mapping of its own for a mebibyte; None without glibc."""
    libc = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Mallinfo
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    before = libc.mallinfo2().hblks
    block = libc.malloc(ctypes.c_size_t(_PROBE_BYTES))
    mapped = libc.mallinfo2().hblks > before
    libc.free(block)
    return bool(mapped)


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def refuse_changed(before: Mapping[str, Any], now: Mapping[str, Any], when: str) -> None:
    """Raise `Meddling` if something of the `state` is not as it was set for the case.

    `when` says what happened in between.
    """
    changed = [
        f"{name}: {old} -> {now[name]}"
        for name, old in before.items()
        if now[name] != old and (name, old) != (MAPPING, True)
    ]
    if changed:
        raise Meddling(
            "state",
            f"{when} it changed {'; '.join(changed)} for the whole process: "
            "not measured until it leaves that alone",
        )


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers in short.

    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def refuse_hidden_work(sampled: Sampled) -> None:
    """Raise `Wrong` if the thread that calls worked for longer than its samples say.

    Below the lower quartile, by which a block is compared, some may: where another guest of the
    machine comes between two readings of its clocks, its time is counted as the thread's.
    """
    if sampled.hidden > (len(sampled.samples) - 1) // 4:
        raise wrong(
            "clock",
            f"in {sampled.hidden} of {len(sampled.samples)} samples it took more processor time "
            "than they lasted: it works beside the clock, or counts its work as waiting",
        )


def refuse_more_threads(sampled: Sampled, threads: int, elsewhere: float = 0.0) -> None:
    """Raise `Meddling` if its samples took more processor time than so many threads can.

    Or if processes that it has started took some, in seconds, `elsewhere`.
    """
    if elsewhere > APART * sampled.own_seconds + TICK:
        raise Meddling(
            "cpu-time",
            f"processes that it started took {elsewhere:.3g} s of processor time while it was "
            "timed; not measured until it leaves them out",
        )
    # Of one thread it shows on a busy machine too, where nobody gets a second core.
    most = sampled.own_seconds if threads == 1 else threads * sampled.running_seconds
    steps = (threads - 1) * TICK * math.sqrt(len(sampled.samples))
    if sampled.processor_seconds > (1 + APART) * most + SLACK + steps:
        raise Meddling(
            "cpu-time",
            f"took {sampled.processor_seconds:.3g} s of processor time where its "
            f"{threads} thread{'s' * (threads > 1)} can take {most:.3g} s: it has threads of its "
            "own; not measured until it leaves them out",
        )


def clocks() -> dict[str, object]:
    """What tells the time, by where it stands; names of ours are among what is `untouched`."""
    return {
        **{f"time.{name}": value for name, value in vars(time).items() if callable(value)},
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "torch.cuda.Event": torch.cuda.Event,
    }


def refuse_replaced(before: Mapping[str, object]) -> None:
    """Raise `Wrong` if something else stands where one of `clocks` stood."""
    now = clocks()
    for name, value in before.items():
        if now.get(name) is not value:
            raise wrong("clock", f"it replaced {name}: no time can be believed")
