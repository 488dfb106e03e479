"""What a call launches: how many operations, and which kernels they went to. Runs in children."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

KERNEL = re.compile(
    r"\w+::_?\w*(attention|cudnn|mkldnn|miopen)\w*|attnbench::\w+|\w+Attention(Backward)?"
)
"""Operators whose name says who does the work: the libraries', our own, our autograd functions."""
UNDECIDED = {"aten::scaled_dot_product_attention", "aten::cudnn_is_acceptable"}
"""Operators that only lead to those."""
_NO_WORK = ("empty", "new_empty", "_unsafe_view", "_reshape_alias", "lift_fresh")
"""Beginnings of names of operations that compute nothing; views compute nothing either."""


def dispatched(call: Callable[[], object]) -> list[str]:
    """Names of the kernels a call goes to, forward and backward, sorted.

    As an example ``aten::_scaled_dot_product_flash_attention_for_cpu``; empty for a call that uses
    neither the libraries' kernels nor our own. The call is made once more for this, so it is never
    the timed one.

    Notes
    -----
    Not by `torch.profiler`: in each fresh process it spends seconds on kineto, prints, and on a
    GPU attaches to CUPTI. The older recorder underneath has none of that, and costs a call alone.
    """
    profiler = torch._C._profiler
    config = profiler.ProfilerConfig(
        profiler.ProfilerState.CPU, False, False, False, False, False,
        profiler._ExperimentalConfig(),
    )  # fmt: skip
    torch._C._autograd._enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = torch._C._autograd._disable_profiler_legacy()
    names = {event.name() for events in threads for event in events}
    return sorted(name for name in names if KERNEL.fullmatch(name) and name not in UNDECIDED)


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        name = func.name().partition("::")[2]
        if not (func.is_view or name.startswith(_NO_WORK)):
            self.count += 1
        return func(*args, **(kwargs or {}))


def count_launches(call: Callable[[], object]) -> int:
    """Call once and count the operations that do work, those of the backward pass included.

    An operation may launch several kernels (a recurrent layer does), so this is the least number
    of launches. Compiled code and replayed graphs can't be counted.
    """
    with _Counter() as counter:
        call()
    return counter.count
