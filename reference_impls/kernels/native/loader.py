"""Build the C++ kernel once and load it.

The library lies in a folder of the user's cache, named by a hash of all that it depends on: source,
torch, compiler, flags, processor. Who builds holds a lock that the operating system takes back when
its process ends, however it ends; what is half built lies in a folder of its own and is renamed
when it is whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch

from reference_impls.mechanism import Unsupported

if sys.platform != "win32":
    import fcntl

NAME = "attnbench_native"
SOURCES = (
    "operators.cpp",
    "forward.cpp",
    "backward.cpp",
    "repair.cpp",
    "directed.cpp",
    "layers.cpp",
)
WANTED = ("-O3", "-march=native", "-fopenmp")
"""Flags of the compiler, each left out where it does not know it."""
PATIENCE = 900.0
"""Seconds to wait for another process that builds the same library."""
LOG_CHARACTERS = 20_000

Command: TypeAlias = tuple[str, ...]


class _NoCompiler(Unsupported):
    """There is no C++ compiler, as on many a machine; nothing has failed."""


def cache_root() -> Path:
    """Where built libraries lie: TORCH_EXTENSIONS_DIR, or attnbench in the user's cache."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "attnbench"


def compiler() -> Command:
    """How the C++ compiler is called: $CXX, or c++, as for torch; "ccache g++" is two words.

    Raises
    ------
    Unsupported
        Where there is none, $CXX is no command, or on Windows.
    """
    if sys.platform == "win32":
        raise _NoCompiler(
            "the native kernel is built on Linux and macOS, not on Windows: choose the "
            "implementation fused_tiled"
        )
    name = os.environ.get("CXX", "c++")
    if found := shutil.which(name):
        return (found,)  # one name, whatever it holds
    try:
        program, *words = shlex.split(name) or [name]
    except ValueError as error:
        raise Unsupported(
            f"CXX is {name!r} ({error}); expected a C++ compiler, or words such as 'ccache g++'"
        ) from None
    found = shutil.which(program)
    if found is None:
        raise _NoCompiler(
            f"the native kernel needs a C++ compiler, and there is no {program!r} on the PATH: "
            "install one, set CXX, or choose the implementation fused_tiled"
        )
    return (found, *words)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What came of it; the compiler need not be one, nor its output text."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:  # no program: a text without a first line, another processor's
        return subprocess.CompletedProcess(command, 126, "", str(error))


def flags(cxx: Command) -> tuple[str, ...]:
    """Those of `WANTED` that the compiler knows."""
    check = [*cxx, "-x", "c++", "-fsyntax-only", os.devnull]
    if _run([*check, *WANTED]).returncode == 0:
        return tuple(WANTED)  # mostly so, and each run of a compiler takes 30 ms
    return tuple(f for f in WANTED if _run([*check, f]).returncode == 0)


def _processor() -> str:
    """What -march=native may look at."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    kept = ("model name", "flags", "Features")
    return "\n".join(sorted({x for x in info.read_text().splitlines() if x.startswith(kept)}))


def key(cxx: Command, used: tuple[str, ...]) -> str:
    """Hash of everything that the library depends on."""
    version = _run([*cxx, "--version"]).stdout
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted([*here.glob("*.cpp"), *here.glob("*.h")]):
        digest.update(file.name.encode() + file.read_bytes())
    for text in (torch.__version__, shlex.join(cxx), version, " ".join(used), _processor()):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:20]


@contextmanager
def locked(file: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold a lock that no dead process keeps.

    Raises
    ------
    Unsupported
        If a living process holds it for longer than `patience` seconds.
    """
    with file.open("a") as handle:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Unsupported(
                        f"another process has been building the native kernel for {patience:.0f} s "
                        f"({file}): end it, or wait"
                    ) from None
                time.sleep(0.1)
        yield


def _linking() -> list[str]:
    # torch brings its own OpenMP: with another one in the process there would be two pools.
    own = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return [str(own[0]) if own else "-lgomp"]


def _compile(cxx: Command, used: tuple[str, ...], folder: Path) -> Path:
    """Build the library in a folder, all sources at once."""
    from torch.utils import cpp_extension  # slow to import: only where something is built

    here, library = Path(__file__).parent, folder / f"{NAME}.so"
    command = [*cxx, "-c", "-fPIC", "-std=c++20", *used]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [x for path in cpp_extension.include_paths() for x in ("-isystem", path)]
    objects = [str(folder / f"{source}.o") for source in SOURCES]
    commands = [
        [*command, str(here / source), "-o", made]
        for source, made in zip(SOURCES, objects, strict=True)
    ]
    link = [*cxx, "-shared", *objects, "-o", str(library)]
    link += [f"-L{path}" for path in cpp_extension.library_paths()]
    link += ["-lc10", "-ltorch_cpu", *(_linking() if "-fopenmp" in used else [])]
    with ThreadPoolExecutor() as pool:
        done = [*pool.map(_run, commands)]
    if not any(one.returncode for one in done):
        done.append(_run(link))
    if any(one.returncode for one in done) or not library.is_file():
        raise _failure(
            cxx, folder, "\n".join(f"{shlex.join(x.args)}\n{x.stdout}{x.stderr}" for x in done)
        )
    return library


def _failure(cxx: Command, folder: Path, message: str) -> Unsupported:
    log = folder.parent / "build.log"
    log.write_text(message[-LOG_CHARACTERS:])
    return Unsupported(
        f"the native kernel could not be built with {shlex.join(cxx)}; what it said is in {log}: "
        "mend that, or choose the implementation fused_tiled"
    )


def _build(cxx: Command, used: tuple[str, ...], library: Path) -> None:
    """Put the library in its place, or raise `Unsupported`; the lock is held."""
    for left in library.parent.glob("build-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    folder = Path(tempfile.mkdtemp(prefix="build-", dir=library.parent))
    try:
        _compile(cxx, used, folder).replace(library)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(root: Path | None = None) -> ctypes.CDLL:
    """Load the library from the cache below `root`, built before if need be.

    Raises
    ------
    Unsupported
        Where there is no compiler, it fails, or the cache can't be written.
    """
    cxx = compiler()
    used = flags(cxx)
    folder = (cache_root() if root is None else root) / f"{NAME}-{key(cxx, used)}"
    library = folder / f"{NAME}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # none, or not whole: a full disk, a copy broken off
            return ctypes.CDLL(str(library))
        with locked(folder / "lock"):
            with contextlib.suppress(OSError):  # another process has built it meanwhile
                return ctypes.CDLL(str(library))
            _build(cxx, used, library)
            return ctypes.CDLL(str(library))
    except OSError as error:
        raise Unsupported(
            f"the native kernel can't be kept in {folder} ({error}): make room there, or set "
            "TORCH_EXTENSIONS_DIR to a folder that can be written"
        ) from error


@functools.cache
def _outcome() -> ctypes.CDLL | Unsupported:
    try:
        return build()
    except Unsupported as error:
        return error


def library() -> ctypes.CDLL:
    """The library; built at most once a process, and a failure is not tried again.

    Raises
    ------
    Unsupported
        As `build`.
    """
    found = _outcome()
    if isinstance(found, Unsupported):
        raise Unsupported(str(found))
    return found


def operators() -> Any:
    """The library's operators in torch, `forward`, `backward`, `mtsa` and so on.

    Raises
    ------
    Unsupported
        As `build`.
    """
    return _registered(library())


@functools.cache
def _registered(library: ctypes.CDLL) -> Any:
    message = ctypes.create_string_buffer(1000)
    if library.attnbench_register(message, ctypes.c_int64(len(message))):
        raise RuntimeError(f"torch takes no operators: {message.value.decode(errors='replace')}")
    return torch.ops.attnbench_native


def without_compiler() -> bool:
    """Whether all that `library` lacks is a compiler: nothing has failed."""
    return isinstance(_outcome(), _NoCompiler)
