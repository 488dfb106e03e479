"""Which kernels a call really went to: a backend is a request, this is what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

KERNEL = re.compile(r"\w+::_?\w*(attention|cudnn|mkldnn|miopen)\w*")
"""Operators whose name says who does the work."""
UNDECIDED = {"aten::scaled_dot_product_attention", "aten::cudnn_is_acceptable"}
"""Operators that only lead to those."""


def dispatched(call: Callable[[], object]) -> list[str]:
    """Names of the kernels a call goes to, forward and backward, sorted.

    As an example ``aten::_scaled_dot_product_flash_attention_for_cpu``; empty for a call that uses
    none of the libraries' kernels. The call is made once more for this, so it is never the timed
    one.

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
