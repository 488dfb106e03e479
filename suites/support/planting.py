"""Put changed source text in place of a module's own, before anything imports it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


class NotPlanted(Exception):
    """The changed text would not be, or was not, what ran: a fault of the runner, not a result."""


class Planted(importlib.abc.SourceLoader):
    """Finds one module, and loads another text for it, in this process from now on.

    Parameters
    ----------
    name : str
        Of the module, ``reference_impls.mtsa.layer``.
    path : Path
        Its own file.
    source : str
        The text to run instead; no bytecode of it is kept.

    Raises
    ------
    NotPlanted
        If the module is imported already: others may hold what its own text made.
    """

    def __init__(self, name: str, path: Path, source: str) -> None:
        if name in sys.modules:
            raise NotPlanted(f"{name} was imported before its text could be changed")
        self.name, self.path, self.source = name, path, source
        self.ran = False
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """For the module alone."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_filename(self, fullname: str) -> str:
        """Its own file, which tracebacks name."""
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        """The other text."""
        return self.source.encode()

    def exec_module(self, module: ModuleType) -> None:
        """Run it, and remember that it ran."""
        self.ran = True
        super().exec_module(module)

    def plant(self) -> None:
        """Import the module; what its text raises comes through."""
        # Who asks for the source of a function, as Triton does, gets this one; without a time of
        # change it is not compared with the file's.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[str(self.path)] = (len(self.source), None, lines, str(self.path))
        importlib.import_module(self.name)

    def confirm(self) -> None:
        """Make certain that the changed text is what everybody sees.

        Raises
        ------
        NotPlanted
            If it never ran, or the module was replaced since.
        """
        module = sys.modules.get(self.name)
        if not self.ran or getattr(module, "__loader__", None) is not self:
            raise NotPlanted(f"{self.name} did not come from the changed text")
