"""The only process code: tasks in processes of their own, under limits.

A task is a function, named ``"package.module:function"``, with arguments and a result that JSON
can hold. Whatever it does, an `Outcome` comes back and nothing of it stays behind:

>>> from harness import isolate
>>> with isolate.Interpreter(preload=()) as interpreter:
...     interpreter.run("statistics:mean", {"data": [1, 2, 6]}).value
3
"""

from __future__ import annotations

from harness.isolate.interpreter import Interpreter, Mode, StartError, run, search_path
from harness.isolate.outcome import USAGE, Limits, Outcome, Status, Wrong
from harness.isolate.pool import Call, Pool, run_all
