"""Building the native kernel: once, whatever dies in between, and clear words where it can't be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from reference_impls.kernels.native import loader
from reference_impls.mechanism import Unsupported

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler"
)


def script(file: Path, text: str) -> Path:
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return file


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """In place of a build of half a minute: an empty library, slowly; when each build began."""
    monkeypatch.setenv("CXX", str(script(tmp_path / "c++", "exit 0\n")))
    began: list[float] = []
    good = Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so"

    def build(cxx: str, used: tuple[str, ...], library: Path) -> None:
        began.append(time.monotonic())
        time.sleep(0.5)
        shutil.copy(good, library)

    monkeypatch.setattr(loader, "_build", build)
    return began


def test_importing_the_kernel_costs_nothing() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import reference_impls.kernels.native;"
        "new = set(sys.modules) - before; assert 'torch.utils.cpp_extension' not in new, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unsupported, match=r"needs a C\+\+ compiler, and there is no 'c\+\+'"):
        loader.build(tmp_path)


def test_a_failure_is_kept_for_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loader._outcome.cache_clear()
    calls = []

    def fail() -> None:
        calls.append(1)
        raise Unsupported("not here")

    monkeypatch.setattr(loader, "build", fail)
    for _ in range(2):
        with pytest.raises(Unsupported, match="not here"):
            loader.library()
    loader._outcome.cache_clear()
    assert len(calls) == 1


@pytest.mark.parametrize("ninja", [True, False])
def test_a_compiler_that_fails(
    ninja: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ninja and not shutil.which("ninja"):
        pytest.skip("needs ninja")
    says = "case \"$*\" in *-dumpfullversion*) echo 12.2.0;; *fsyntax*) ;; *.cpp*) "
    cxx = script(tmp_path / "g++", f"{says} echo the disk is purple >&2; exit 1;; esac\n")
    monkeypatch.setenv("CXX", str(cxx))
    if not ninja:
        which = shutil.which
        monkeypatch.setattr(loader.shutil, "which", lambda n: None if n == "ninja" else which(n))
    with pytest.raises(Unsupported, match=r"could not be built with .*; what it said is in") as it:
        loader.build(tmp_path / "cache")
    (log,) = (tmp_path / "cache").glob("*/build.log")
    assert str(log) in str(it.value)
    assert "\n" not in str(it.value)
    assert "the disk is purple" in log.read_text()
    assert not list(log.parent.glob("build-*"))


def test_the_library_is_built_once_by_two_at_a_time(stand_in: list[float], tmp_path: Path) -> None:
    loaded: list[object] = []
    threads = [
        threading.Thread(target=lambda: loaded.append(loader.build(tmp_path / "cache")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 2
    assert len(stand_in) == 1


def test_a_broken_library_is_built_again(stand_in: list[float], tmp_path: Path) -> None:
    loader.build(tmp_path / "cache")
    (library,) = (tmp_path / "cache").glob("*/*.so")
    library.unlink()
    library.write_bytes(b"half of it")
    loader.build(tmp_path / "cache")
    assert len(stand_in) == 2


def test_the_key_is_of_all_that_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = str(script(tmp_path / "one", "echo 1\n"))
    two = str(script(tmp_path / "two", "echo 2\n"))
    keys = {loader.key(one, ()), loader.key(two, ()), loader.key(one, ("-O3",))}
    monkeypatch.setattr(torch, "__version__", "0")
    keys.add(loader.key(one, ()))
    monkeypatch.setattr(loader, "_processor", lambda: "another")
    keys.add(loader.key(one, ()))
    assert len(keys) == 5
    assert loader.key(one, ()) in keys


HOLDS = """
import sys, time
from pathlib import Path
from reference_impls.kernels.native import loader
with loader.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_dead_hold_no_lock_and_the_living_do(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(file)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Unsupported, match="another process has been building"),
            loader.locked(file, patience=0.3),
        ):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with loader.locked(file, patience=0.3):
        pass


def test_what_a_killed_build_left_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build-left").mkdir()

    def built(cxx: str, used: tuple[str, ...], folder: Path) -> Path:
        library = folder / "it.so"
        library.write_bytes(b"whole")
        return library

    monkeypatch.setattr(loader, "_build_by_torch", built)
    monkeypatch.setattr(loader, "_build_directly", built)
    loader._build("c++", (), tmp_path / "library.so")
    assert [file.name for file in tmp_path.iterdir()] == ["library.so"]


def test_a_cache_that_cannot_be_written(stand_in: list[float], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(Unsupported, match="set TORCH_EXTENSIONS_DIR to a folder") as it:
        loader.build(tmp_path / "cache")
    assert "\n" not in str(it.value)


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/somewhere")
    assert loader.cache_root() == Path("/somewhere")
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert loader.cache_root() == Path("/cache/attnbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert loader.cache_root() == Path.home() / ".cache" / "attnbench"


@needs_compiler
@pytest.mark.slow
def test_it_builds_without_ninja(tmp_path: Path) -> None:
    cxx = loader.compiler()
    library = loader._build_directly(cxx, loader.flags(cxx), tmp_path)
    code = f"import torch, ctypes; print(ctypes.CDLL({str(library)!r}).attnbench_problem_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    from reference_impls.kernels.native.call import Problem

    assert int(done.stdout) == __import__("ctypes").sizeof(Problem)
