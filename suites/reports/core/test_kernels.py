"""Notebooks in parallel on kernels that live on: nothing of one reaches another."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
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


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reports.execute, "NOTEBOOKS", tmp_path)
    write_book(tmp_path, "leaves", "x = 1", "left = x\nimport os; os.getpid()")
    write_book(tmp_path, "finds", "x = 1", "'left' in globals(), len(In)", "import os; os.getpid()")
    write_book(
        tmp_path,
        "opens",
        "journal = ''",
        "from reports.core.parameters import refuse_unknown\nrefuse_unknown(['journal'])",
    )
    write_book(tmp_path, "raises", "x = 1", "raise ValueError('first line\\nsecond')")
    write_book(tmp_path, "dies", "x = 1", "import os; os._exit(3)")
    return tmp_path


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    one = Kernel()
    yield one
    one.close()


def result(executed: Any, cell: int) -> str:
    return str(executed.cells[cell].outputs[0]["data"]["text/plain"])


def test_a_kernel_serves_again_and_has_forgotten(books: Path, kernel: Kernel) -> None:
    first = kernel.execute("leaves", {"x": "7"}, books / "a.ipynb")
    second = kernel.execute("finds", {"x": "8"}, books / "b.ipynb")
    assert result(first, 2) == result(second, 3)  # one process
    assert kernel.started == 1
    present, cells = result(second, 2).strip("()").split(", ")
    assert present == "False"
    assert int(cells) == 4  # "" and its own three, papermill's among them
    assert [c.execution_count for c in second.cells] == [1, 2, 3, 4]
    assert nbformat.read(books / "b.ipynb", as_version=4).cells[3].outputs


def test_a_misspelt_parameter_fails_on_a_used_kernel_too(books: Path, kernel: Kernel) -> None:
    kernel.execute("opens", {"journal": "right"}, books / "a.ipynb")
    with pytest.raises(NotebookFailed, match="unknown parameter 'jurnal'"):
        kernel.execute("opens", {"jurnal": "x"}, books / "b.ipynb")
    kernel.execute("opens", {"journal": "right"}, books / "c.ipynb")


def test_a_failing_cell_is_one_line_and_the_kernel_goes_on(books: Path, kernel: Kernel) -> None:
    with pytest.raises(NotebookFailed) as error:
        kernel.execute("raises", {}, books / "a.ipynb")
    assert str(error.value) == "ValueError: first line"
    kernel.execute("leaves", {}, books / "b.ipynb")
    assert kernel.started == 1


def test_a_dead_kernel_is_replaced(books: Path, kernel: Kernel) -> None:
    kernel.execute("leaves", {}, books / "a.ipynb")
    with pytest.raises(NotebookFailed):
        kernel.execute("dies", {}, books / "b.ipynb")
    executed = kernel.execute("finds", {}, books / "c.ipynb")
    assert result(executed, 1).startswith("(False")
    assert kernel.started == 2


def test_workers_run_beside_each_other_and_results_come_in_order() -> None:
    barrier, told = threading.Barrier(2, timeout=20), []

    def task(number: int) -> Any:
        return lambda kernel: (barrier.wait(), number, kernel)[1:]

    found = in_parallel([task(n) for n in range(4)], 2, lambda n, _: told.append(n))
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
        in_parallel([task(n) for n in range(50)], 1, lambda *_: None)
    assert len(begun) < 50


def test_papermill_needs_no_kernel_installed_elsewhere() -> None:
    spec = RunningPython().kernel_spec
    assert spec.argv[0] == sys.executable
    assert spec.env["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
