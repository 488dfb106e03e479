"""Executes notebooks with papermill, in the running Python; a kernel serves one after another."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger

ROOT = Path(__file__).resolve().parents[1]
_INSTALLED = Path(__file__).with_name("notebooks")
NOTEBOOKS = _INSTALLED if _INSTALLED.is_dir() else ROOT / "notebooks"
"""A wheel has them inside the package, a clone beside it."""
KERNEL = "python3"
ENGINE = "attnbench"
LIMIT_SECONDS = 600
START_OVER = "from reports.core.parameters import start_over as _over; _over()"
"""What the kernel runs between two notebooks: the second finds nothing of the first."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

T = TypeVar("T")


class RunningPython(AsyncKernelManager):
    """A kernel of the Python that runs this, whatever kernels are installed where."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How it is started: with our packages importable from any folder."""
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return KernelSpec(
            argv=[
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--IPKernelApp.log_level=ERROR",
            ],
            display_name="Python 3",
            language="python",
            # Several run at a time, and what they compute is small.
            env={
                "PYTHONPATH": path,
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                **dict.fromkeys(THREADS, "1"),
            },
        )

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        """Start it without its chatter; what fails in a cell comes back as a message."""
        await super().start_kernel(**{**options, "stderr": subprocess.DEVNULL})


class NotebookFailed(Exception):
    """A notebook did not run to its end; the message is one line."""


class Kernel:
    """A kernel that executes notebooks, one at a time, from one thread.

    It starts with the first of them. Starting and importing takes longer than most notebooks, so
    it is kept, and forgets everything between two of them; after a failure that is not a cell's
    own a fresh one takes its place.
    """

    def __init__(self) -> None:
        self._manager: RunningPython | None = None
        self._client: Any = None
        self.started = 0

    def execute(self, name: str, parameters: Mapping[str, str], to: Path) -> Any:
        """Run ``notebooks/<name>.ipynb`` and return it executed; it is saved, too.

        Raises
        ------
        NotebookFailed
        """
        import papermill
        from papermill.exceptions import PapermillExecutionError

        try:
            return papermill.execute_notebook(
                NOTEBOOKS / f"{name}.ipynb",
                to,
                dict(parameters),
                engine_name=ENGINE,
                kernel_name=KERNEL,
                language="python",
                progress_bar=False,
                request_save_on_cell_execute=False,
                live=self,
            )
        except PapermillExecutionError as error:
            raise NotebookFailed(_one_line(f"{error.ename}: {error.evalue}")) from None
        except Exception as error:  # a kernel that can't start or dies has many types
            self.close()
            raise NotebookFailed(_one_line(f"{type(error).__name__}: {error}")) from None

    def run(self, book: Any) -> None:
        """Execute what papermill has prepared (a `NotebookExecutionManager`)."""
        if self._manager is None:
            self._manager = RunningPython(kernel_name=KERNEL)
            self.started += 1
        client = PapermillNotebookClient(
            book,
            km=self._manager,
            kernel_name=KERNEL,
            timeout=LIMIT_SECONDS,
            startup_timeout=60,
            log=logger,
        )
        if self._client is not None:
            client.kc = self._client.kc
            run_sync(_start_over)(client)
        self._client = client
        client.execute()

    def close(self) -> None:
        """End the kernel."""
        client, self._manager, self._client = self._client, None, None
        if client is not None:
            with suppress(Exception):  # it may be dead already
                client._cleanup_kernel()


async def _start_over(client: PapermillNotebookClient) -> None:
    """Make the kernel forget, and wait until it has."""
    message = client.kc.execute(START_OVER, silent=True, store_history=False)
    await client.async_wait_for_reply(message)


class _Engine(NBClientEngine):
    """papermill's own engine, on a kernel that lives on."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> None:
        options["live"].run(nb_man)


papermill_engines.register(ENGINE, _Engine)


@contextmanager
def quiet() -> Iterator[None]:
    """Without papermill's log: it logs what is raised as well."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def in_parallel(
    tasks: Sequence[Callable[[Kernel], T]], workers: int, on_done: Callable[[T], None]
) -> list[T]:
    """Do the tasks, several at a time, each worker with a kernel of its own; results in order.

    Each is told (`on_done`) as it ends, one at a time.
    """
    todo = deque(enumerate(tasks))
    found: dict[int, T] = {}
    telling = Lock()

    def work() -> None:
        # One call per thread: a kernel's sockets belong to the event loop of its thread.
        with closing(Kernel()) as kernel:
            while True:
                try:
                    number, task = todo.popleft()
                except IndexError:
                    return
                found[number] = task(kernel)
                with telling:
                    on_done(found[number])

    with quiet(), ThreadPoolExecutor(max(1, min(workers, len(tasks)))) as pool:
        running = [pool.submit(work) for _ in range(workers)]
        try:
            for one in as_completed(running):
                one.result()
        except BaseException:  # ctrl-C, say: what is waiting is not begun
            todo.clear()
            raise
    return [found[number] for number in range(len(tasks))]


def _one_line(text: str) -> str:
    """First line; the executed notebook holds the rest."""
    return next((line for line in text.splitlines() if line.strip()), "unknown error").strip()
