"""Executes a notebook with papermill, in the running Python."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
KERNEL = "python3"
LIMIT_SECONDS = 600


class RunningPython(AsyncKernelManager):
    """A kernel of the Python that runs this, whatever kernels are installed where."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How it is started: with our packages importable from any folder."""
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return KernelSpec(
            argv=[
                sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}",
                "--IPKernelApp.log_level=ERROR",
            ],
            display_name="Python 3",
            language="python",
            env={"PYTHONPATH": path, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        )  # fmt: skip

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        """Start it without its chatter; what fails in a cell comes back as a message."""
        await super().start_kernel(**{**options, "stderr": subprocess.DEVNULL})


class NotebookFailed(Exception):
    """A notebook did not run to its end; the message is one line."""


def execute(name: str, parameters: Mapping[str, str], to: Path) -> Any:
    """Run ``notebooks/<name>.ipynb`` and return the executed notebook, which is also saved.

    Raises
    ------
    NotebookFailed
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.disable(logging.CRITICAL)  # papermill logs what is raised as well
    try:
        return papermill.execute_notebook(
            NOTEBOOKS / f"{name}.ipynb", to, dict(parameters), kernel_name=KERNEL,
            language="python", progress_bar=False, request_save_on_cell_execute=False,
            kernel_manager_class=RunningPython, execution_timeout=LIMIT_SECONDS,
        )  # fmt: skip
    except PapermillExecutionError as error:
        raise NotebookFailed(_one_line(f"{error.ename}: {error.evalue}")) from None
    except Exception as error:  # a kernel that can't start or dies has many types
        raise NotebookFailed(_one_line(f"{type(error).__name__}: {error}")) from None
    finally:
        logging.disable(logging.NOTSET)


def _one_line(text: str) -> str:
    """First line; the executed notebook holds the rest."""
    return next((line for line in text.splitlines() if line.strip()), "unknown error").strip()
