"""What a task relies on is what stood there before foreign code was imported.

Else a module could give numbers of its own: to a clock, to a comparison, or as the answer.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from harness.isolate.outcome import Wrong

OWN = ("harness", "reference_impls")
LIBRARIES = {"torch", "torch.autograd", "torch.nn", "torch.nn.functional", "numpy", "json", "os"}
"""Whose functions make our numbers, and those of what a module is compared with."""
CONSTANTS = (int, float, str, tuple)
_INSIDE = ("__code__", "__defaults__", "__kwdefaults__")
_KEPT: dict[Any, tuple[str, dict[str, Any]]] = {}
"""By what holds them: its name, and its attributes as they were."""


def remember() -> None:
    """Note what stands in modules, classes and functions that are not noted yet."""
    for name, module in list(sys.modules.items()):
        own = name.partition(".")[0] in OWN
        if module in _KEPT or not (own or name in LIBRARIES):
            continue
        _KEPT[module] = name, dict(vars(module))
        for key, value in vars(module).items():
            if isinstance(value, type) and (own or name == "torch.nn"):
                _KEPT.setdefault(value, (f"{name}.{key}", dict(vars(value))))
            elif own and isinstance(value, FunctionType):
                _KEPT.setdefault(value, (f"{name}.{key}", _attributes(value)))
        if name == "torch":
            # What replaces a method of its base has a name that was not there.
            inherited = dict.fromkeys(dir(module._C.TensorBase))
            _KEPT[module.Tensor] = "torch.Tensor", inherited | vars(module.Tensor)


def _attributes(holder: Any) -> Any:
    if isinstance(holder, FunctionType):
        return {name: getattr(holder, name) for name in _INSIDE}
    return vars(holder)


def _replaced() -> Iterator[tuple[str, Any, str, Any]]:
    for holder, (name, before) in _KEPT.items():
        now = _attributes(holder)
        if not any(map(operator.is_not, before.values(), map(now.get, before))):
            continue
        own = name.startswith(OWN)
        for key, value in before.items():
            there = now.get(key)
            absent = value is None and not isinstance(holder, ModuleType)
            constant = name.startswith("harness") and isinstance(value, CONSTANTS)
            matters = absent or callable(value) or constant
            if there is not value and matters and (own or not _torchs(value, there)):
                yield f"{name}.{key}", holder, key, value


def _torchs(value: Any, there: Any) -> bool:
    """Whether torch puts it there itself: it tags modules, and has types by the default dtype."""
    source = getattr(there, "__globals__", {}).get("__name__", "")
    return isinstance(value, type) or str(source).startswith("torch.")


def refuse_replaced() -> None:
    """Raise if something of what is noted is another thing now, and put it back.

    Raises
    ------
    Wrong
    """
    found = list(_replaced())
    for _, holder, key, value in found:
        if value is None and isinstance(holder, type):
            delattr(holder, key)
        else:
            setattr(holder, key, value)
    if found:
        where = found[0][0]
        raise Wrong(
            f"it replaced {where}: nothing that this process says can be believed",
            {"found_by": "untouched"},
        )
