"""Which mechanisms there are: built in (by scan), from entry points, and given by ``--with``.

Nothing here imports torch, unless a foreign record's own package does.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import reference_impls
from harness.errors import UsageError
from reference_impls.mechanism import BadOption, Implementation, Mechanism

FACTORIES = "attnbench.mechanisms"
"""Entry-point group: name -> ``package.module:factory``, which ``list`` does not import."""
RECORDS = "attnbench.records"
"""Entry-point group: name -> a `Mechanism` record or a tuple of them; imported when listed."""

FOREIGN_IMPLEMENTATION = "module"
SOURCES = {".py", ".cpp", ".cu", ".cuh", ".h", ".c", ".pyx", ".toml"}
"""What counts as source code of a mechanism."""
SHARED = ("build.py", "case.py", "inputs.py", "stats/timing.py", "stats/sums.py")
"""Of ``harness``: what is not in the packages that measure, train and verify, but decides their
numbers: inputs, a block's time, the sums of metrics."""


def resolve(dotted: str) -> Any:
    """Import ``package.module:attribute``.

    Raises
    ------
    UsageError
        If the text has another form, or the module or attribute is not there.
    """
    module_name, colon, attribute = dotted.partition(":")
    if not (module_name and colon and attribute):
        raise UsageError(f"given {dotted!r}; expected package.module:attribute")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            raise UsageError(
                f"no module {error.name!r} for {dotted!r}; install it, or run from its folder"
            ) from error
        raise UsageError(f"importing {module_name} failed: {error}") from error
    except (Exception, SystemExit) as error:  # whatever someone else's module does when imported
        first = str(error).splitlines()[0] if str(error) else ""
        text = f"importing {module_name} failed: {type(error).__name__}: {first}"
        raise UsageError(text) from error
    try:
        value = module
        for part in attribute.split("."):
            value = getattr(value, part)
    except AttributeError:
        raise UsageError(f"module {module_name!r} has no attribute {attribute!r}") from None
    return value


@cache
def builtins() -> Mapping[str, Mechanism]:
    """Built-in mechanisms by name, from the ``MECHANISMS`` of each package in `reference_impls`.

    A package without them is one that mechanisms share.
    """
    found: dict[str, Mechanism] = {}
    for info in pkgutil.iter_modules(reference_impls.__path__):
        if not info.ispkg:
            continue
        package = importlib.import_module(f"reference_impls.{info.name}")
        for mechanism in getattr(package, "MECHANISMS", ()):
            found[mechanism.name] = mechanism
    return MappingProxyType(found)


def foreign(name: str, dotted: str, summary: str, heads: bool | None = None) -> Mechanism:
    """The record of a mechanism that only has a factory; None: it is not loaded yet."""
    one = Implementation(FOREIGN_IMPLEMENTATION, dotted, summary)
    return Mechanism(name, summary, dotted, implementations=(one,), takes_heads=heads)


def names_heads(factory: Any) -> bool:
    """Whether a factory names the parameter itself (``**options`` alone does not count)."""
    with suppress(TypeError, ValueError):
        return "heads" in inspect.signature(factory).parameters
    return False


@cache
def _points(path: tuple[str, ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Factories, then records, of the packages in these folders: a file of every one is read."""
    every = importlib.metadata.entry_points()
    return (*every.select(group=FACTORIES), *every.select(group=RECORDS))


def entry_points() -> dict[str, Mechanism]:
    """Mechanisms of installed packages, by name."""
    found: dict[str, Mechanism] = {}
    for point in _points(tuple(sys.path)):
        if point.group == FACTORIES:
            package = point.dist.name if point.dist else "an installed package"
            loaded: Any = foreign(point.name, point.value, f"from {package}")
        else:
            loaded = resolve(point.value)
        for mechanism in loaded if isinstance(loaded, tuple) else (loaded,):
            found[mechanism.name] = mechanism
    return found


def given(dotted: str) -> tuple[Mechanism, ...]:
    """The mechanism(s) of one ``--with package.module:attribute``.

    The attribute is a factory, a `Mechanism` record or a tuple of records. The working folder is
    importable, as it is for ``python -m``.

    Raises
    ------
    UsageError
        If it can't be imported or is neither.
    """
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        # Behind everything else: a folder named reports there must not hide ours.
        sys.path.append(str(Path.cwd()))
    value = resolve(dotted)
    if isinstance(value, Mechanism):
        return (value,)
    if isinstance(value, tuple) and all(isinstance(v, Mechanism) for v in value):
        return value
    if not callable(value):
        raise UsageError(f"{dotted} is a {type(value).__name__}; expected a factory or a Mechanism")
    name = dotted.partition(":")[2].rpartition(".")[2]  # a dot in it would begin an implementation
    return (foreign(name, dotted, f"given by --with {dotted}", names_heads(value)),)


class Registry:
    """All mechanisms of one run.

    Parameters
    ----------
    extra : iterable of str
        What ``--with`` named; it wins over installed and built-in mechanisms of the same name.

    Attributes
    ----------
    replaced : list of str
        Names of those that it won over.
    """

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self.extra = tuple(extra)
        self.mechanisms: dict[str, Mechanism] = {**builtins(), **entry_points()}
        self.given_names: tuple[str, ...] = ()
        self.replaced: list[str] = []
        for dotted in dict.fromkeys(self.extra):
            for mechanism in given(dotted):
                if mechanism.name in self.given_names:
                    named = f"{mechanism.name!r} is the name of two that --with gives"
                    raise UsageError(f"{named}: {', '.join(self.extra)}; rename one of them")
                self.replaced += [mechanism.name] * (mechanism.name in self.mechanisms)
                self.mechanisms[mechanism.name] = mechanism
                self.given_names += (mechanism.name,)

    @property
    def flags(self) -> str:
        """What a command needs to know the same mechanisms, with a space before it."""
        return "".join(f" --with {dotted}" for dotted in self.extra)

    def refuse_unnamed(self, names: Sequence[str]) -> None:
        """Nothing is asked of what ``--with`` gives if these name others alone.

        Raises
        ------
        UsageError
            If there are names, and none is of a mechanism that was given.
        """
        own = self.given_names
        if own and names and not {*own} & {re.split(r"[.@[]", n)[0] for n in names}:
            raise UsageError(
                f"--with gives {', '.join(own)}, and {', '.join(names)} names none of it; name it "
                "too, or leave --with out"
            )

    def mechanism(self, name: str) -> Mechanism:
        """Return the mechanism of that name.

        Raises
        ------
        UsageError
            Naming close matches.
        """
        if name in self.mechanisms:
            return self.mechanisms[name]
        close = difflib.get_close_matches(name, self.mechanisms, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see: attnbench list"
        raise UsageError(f"unknown mechanism {name!r}; {hint}")

    def find(self, name: str) -> tuple[Mechanism, Implementation]:
        """Return mechanism and implementation for ``mechanism.implementation``.

        Raises
        ------
        UsageError
            If either is unknown.
        """
        if name in self.mechanisms:
            mechanism = self.mechanisms[name]
            return mechanism, mechanism.implementation(
                mechanism.default or mechanism.implementations[-1].name
            )
        head, _, tail = name.rpartition(".")
        mechanism = self.mechanism(head or name)
        try:
            return mechanism, mechanism.implementation(tail)
        except BadOption as error:
            raise UsageError(str(error)) from None

    def select(self, patterns: Iterable[str]) -> list[tuple[Mechanism, Implementation]]:
        """Expand names: ``mtsa`` is all its implementations, ``mtsa.plain`` is one."""
        chosen: dict[tuple[str, str], tuple[Mechanism, Implementation]] = {}
        for pattern in patterns:
            if pattern in self.mechanisms or "." not in pattern:
                mechanism = self.mechanism(pattern)
                pairs = [(mechanism, i) for i in mechanism.implementations]
            else:
                pairs = [self.find(pattern)]
            for mechanism, implementation in pairs:
                chosen[mechanism.name, implementation.name] = (mechanism, implementation)
        return list(chosen.values())


def _sources(module_name: str) -> list[Path]:
    """Files whose text decides what a module does.

    Its whole top package (with or without an ``__init__``); of a module that stands alone, itself
    and what is loaded from its folder.

    Raises
    ------
    UsageError
        If there is no such file: a record could not be told from one of other code.
    """
    spec = importlib.util.find_spec(module_name.partition(".")[0])
    files: set[Path] = set()
    if spec is not None and spec.submodule_search_locations is not None:
        for folder in map(Path, spec.submodule_search_locations):
            files |= {f for f in folder.rglob("*") if f.suffix in SOURCES}
    elif spec is not None and spec.origin is not None:
        origin = Path(spec.origin)
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        files = {origin, *(Path(f) for f in loaded if f and Path(f).parent == origin.parent)}
    files = {f for f in files if f.is_file()}
    if not files:
        raise UsageError(
            f"no source file of {module_name!r} was found, so its records can't be known again; "
            "put it in a module on disk"
        )
    return sorted(files)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _with_imports(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files, those of the mechanisms' packages that they import, and what these import."""
    root = Path(reference_impls.__path__[0])
    found, waiting = set(files), [*files]
    while waiting:
        for package in re.findall(r"reference_impls\.(\w+)", waiting.pop().read_text("utf-8")):
            new = {f for f in (root / package).rglob("*") if f.suffix in SOURCES} - found
            found |= new
            waiting += new
    return tuple(sorted(found))


def _file_of(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin)


@cache
def harness_hash(package: str) -> str:
    """Hash of the source files of ``harness/<package>`` and of those in `SHARED`.

    Without those in a folder ``tasks``: each of them counts for its own tasks (`module_hash`).
    """
    root = Path(__file__).parent
    own = sorted(f for f in (root / package).rglob("*.py") if f.parent.name != "tasks")
    return _digest([*own, *(root / name for name in SHARED)])


@cache
def module_hash(dotted: str) -> str:
    """Hash of the file of a module, from ``package.module:attribute``.

    Raises
    ------
    UsageError
        If there is no such file.
    """
    module = dotted.partition(":")[0]
    if (file := _file_of(module)) is None:
        raise UsageError(f"no source file of {module!r} was found; put it in a module on disk")
    return _digest([file])


def code_hash(mechanism: Mechanism, judge: str) -> str:
    """Hash of a mechanism's source and of the part of the harness that judges it.

    Parameters
    ----------
    judge : {"measure", "verify", "train"}
        Sub-package of the harness.
    """
    dotted = [i.factory for i in mechanism.implementations] + [mechanism.oracle or ""]
    modules = sorted({d.partition(":")[0] for d in dotted if d})
    if mechanism.folder:
        root = Path(reference_impls.__path__[0])
        package = (root / mechanism.folder.rpartition(".")[2]).rglob("*")
        elsewhere = (_file_of(m) for m in modules if not m.startswith("reference_impls."))
        own = [f for f in package if f.suffix in SOURCES] + [f for f in elsewhere if f]
        files = [*sorted(root.glob("*.py")), *_with_imports(tuple(own))]
    else:
        files = [file for module in modules for file in _sources(module)]
    return hashlib.sha256((_digest(files) + harness_hash(judge)).encode()).hexdigest()[:16]
