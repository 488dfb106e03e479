"""Preloaded: who forks goes on only after a while, as on a busy machine."""

import os
import time
from functools import partial

os.register_at_fork(after_in_parent=partial(time.sleep, 0.3))
