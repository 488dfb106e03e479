"""Warnings of many comparisons, each told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from harness.train.task import gathered


def told_once(judged: Sequence[tuple[str, str, Sequence[str]]]) -> list[str]:
    """Warnings of all comparisons: once for a task where all of its comparisons have them, and
    once for all tasks of which the same is said.

    Parameters
    ----------
    judged : sequence of (model, task, warnings)
        A comparison each.
    """
    sizes = Counter(task for _, task, _ in judged)
    places: dict[str, dict[str, list[str]]] = {}
    for model, task, warnings in judged:
        for warning in warnings:
            places.setdefault(warning, {}).setdefault(task, []).append(model)
    out: list[str] = []
    alone: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for warning, of_task in places.items():
        whole = [task for task, some in of_task.items() if len(some) == sizes[task]]
        if len(whole) == len(sizes):
            out.append(warning)
            continue
        if whole:
            out.append(f"{', '.join(gathered(whole))}: {warning}")
        head, _, body = warning.partition(": ")
        for task, some in of_task.items():
            if task not in whole:
                alone.setdefault((task, head), []).extend((model, body) for model in some)
    of_tasks: dict[tuple[str, str], list[str]] = {}
    for (task, head), found in alone.items():
        bodies = dict.fromkeys(body for _, body in found)
        if len(bodies) == 1:  # of one, or the same of several
            body = next(iter(bodies))
            key = (
                f"{', '.join(name for name, _ in found)} on ",
                f"{head}{': ' if body else ''}{body}",
            )
        else:
            key = "", f"{head}: {_joined(list(bodies))}"
        of_tasks.setdefault(key, []).append(task)
    for (names, text), tasks in of_tasks.items():
        out.append(f"{names}{', '.join(gathered(tasks))}: {text}")
    return out


def _joined(bodies: Sequence[str]) -> str:
    """Texts behind each other, what all of them end with said once."""
    backwards = zip(*(reversed(body) for body in bodies), strict=False)
    alike = takewhile(lambda letters: len(set(letters)) == 1, backwards)
    ending = "".join(letters[0] for letters in alike)[::-1]
    cuts = [i for i in (ending.find(", "), ending.find("; ")) if i >= 0]
    shared = ending[min(cuts) :] if cuts else ""
    return "; ".join(body.removesuffix(shared) for body in bodies) + shared
