"""Notebooks in parallel on kernels that live on: nothing of one reaches another."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest

import reports.execute
from reports.execute import Kernel, NotebookFailed, RunningPython, in_parallel
from suites.support.command_line import ROOT

PARAMETERS = {"tags": ["parameters"]}


def write_book(folder: Path, name: str, *cells: str) -> None:
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    book.cells[0].metadata = dict(PARAMETERS)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "p", "language": "python"}
    nbformat.write(book, folder / f"{name}.ipynb")


def result(executed: Any, cell: int) -> str:
    return str(executed.cells[cell].outputs[0]["data"]["text/plain"])


def test_a_kernel_serves_again_has_forgotten_outlives_errors_and_is_replaced_when_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports.execute, "NOTEBOOKS", tmp_path)
    opens = "from reports.core.parameters import refuse_unknown\nrefuse_unknown(['journal'])"
    write_book(tmp_path, "leaves", "x = 1", "left = x\nimport os; os.getpid()")
    write_book(tmp_path, "finds", "x = 1", "'left' in globals(), len(In)", "import os; os.getpid()")
    write_book(tmp_path, "opens", "journal = ''", opens)
    write_book(tmp_path, "raises", "x = 1", "raise ValueError('first line\\nsecond')")
    write_book(tmp_path, "dies", "x = 1", "import os; os._exit(3)")
    out = tmp_path / "out.ipynb"
    with closing(Kernel()) as kernel:
        first = kernel.execute("leaves", {"x": "7"}, out)
        second = kernel.execute("finds", {"x": "8"}, out)
        assert result(first, 2) == result(second, 3), "one process"
        present, cells = result(second, 2).strip("()").split(", ")
        assert present == "False"
        assert int(cells) == 4  # "" and its own three, papermill's among them
        assert [c.execution_count for c in second.cells] == [1, 2, 3, 4]
        assert nbformat.read(out, as_version=4).cells[3].outputs
        kernel.execute("opens", {"journal": "right"}, out)
        with pytest.raises(NotebookFailed, match="unknown parameter 'jurnal'"):
            kernel.execute("opens", {"jurnal": "x"}, out)
        kernel.execute("opens", {"journal": "right"}, out)
        with pytest.raises(NotebookFailed) as error:
            kernel.execute("raises", {}, out)
        assert str(error.value) == "ValueError: first line"
        assert result(kernel.execute("leaves", {}, out), 1) == result(first, 2)
        assert kernel.started == 1
        with pytest.raises(NotebookFailed):
            kernel.execute("dies", {}, out)
        assert result(kernel.execute("finds", {}, out), 1).startswith("(False")
        assert kernel.started == 2


def test_workers_run_beside_each_other_and_results_come_in_order() -> None:
    barrier, told = threading.Barrier(2, timeout=20), []

    def task(number: int) -> Any:
        return lambda kernel: (barrier.wait(), number, kernel)[1:]

    found = in_parallel([task(n) for n in range(4)], 2, lambda one: told.append(one[0]))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert sorted(told) == [0, 1, 2, 3]
    assert len({id(kernel) for _, kernel in found}) == 2


def test_an_error_ends_it_and_nothing_more_is_begun() -> None:
    begun: list[int] = []

    def task(number: int) -> Any:
        def do(kernel: Kernel) -> None:
            begun.append(number)
            if number == 0:
                raise RuntimeError("broken")
            time.sleep(0.05)

        return do

    with pytest.raises(RuntimeError, match="broken"):
        in_parallel([task(n) for n in range(50)], 1, lambda _: None)
    assert len(begun) < 50


def test_papermill_needs_no_kernel_installed_elsewhere() -> None:
    spec = RunningPython().kernel_spec
    assert spec.argv[0] == sys.executable
    assert spec.env["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
