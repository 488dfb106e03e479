"""Preloaded: who forks goes on only after a while, and takes the child apart after a longer one."""

import os
import time
from functools import partial

from harness.isolate.server import Server

AFTER_FORK, BEFORE_END = 0.3, 1.5
"""Seconds, as on a busy machine, and for a child that held much memory."""


def _end(self: Server, end=Server._end) -> None:
    if self.worker is not None:
        time.sleep(BEFORE_END)
    end(self)


os.register_at_fork(after_in_parent=partial(time.sleep, AFTER_FORK))
Server._end = _end  # type: ignore[method-assign]
