"""Building the native kernel: once, whatever dies in between, and clear words where it can't be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from reference_impls.kernels import core
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.native import loader
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported
from suites.support.parameters import has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


def script(file: Path, text: str) -> Path:
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def fresh_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process has built, or not, is as if it had not been asked yet."""
    monkeypatch.setattr(loader, "_outcome", cache(loader._outcome.__wrapped__))
    monkeypatch.setattr(core, "_failed", [])


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """In place of a build of half a minute: an empty library, slowly; when each build began."""
    monkeypatch.setenv("CXX", str(script(tmp_path / "c++", "exit 0\n")))
    began: list[float] = []
    good = Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so"

    def build(cxx: loader.Command, used: tuple[str, ...], library: Path) -> None:
        began.append(time.monotonic())
        time.sleep(0.5)
        shutil.copy(good, library)

    monkeypatch.setattr(loader, "_build", build)
    return began


PURPLE = """
case "$*" in *-dumpfullversion*) echo 12.2.0;; *fsyntax*) ;;
*.cpp*) echo the disk is purple >&2; exit 1;; esac
"""


@pytest.mark.parametrize("body", [PURPLE, "exit 1\n", "exit 0\n", None])
def test_a_compiler_that_builds_nothing_is_asked_once_and_told_every_time(
    body: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cxx = script(tmp_path / "g++", body or "")
    if body is None:
        cxx.write_bytes(b"\x7fELF, or not")
    monkeypatch.setenv("CXX", str(cxx))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    build = Mock(wraps=loader.build)
    monkeypatch.setattr(loader, "build", build)
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"could not be built with .*/g[+][+]; what it") as it:
            loader.library()
        assert "\n" not in str(it.value)
    assert build.call_count == 1
    (log,) = (tmp_path / "cache").glob("*/build.log")
    assert str(log) in str(it.value)
    assert log.read_text().strip()
    assert body != PURPLE or "the disk is purple" in log.read_text()
    assert not list(log.parent.glob("build-*"))


def test_auto_says_once_that_the_build_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path / "c++", "exit 1\n")))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(core, "available", cache(core._available.__wrapped__))
    ones = torch.ones(1, 1, 2, 4)
    open_to_all = of_masks(parse_all(["none"], 1), 2, torch.device("cpu"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            core.attend(ones, ones, ones, ones, open_to_all, None, "identity")
            assert core.ran() == "tiled"
    (one,) = told
    text = str(one.message)
    assert text.startswith("slower code runs in place of the native kernels: ")
    assert "build.log" in text
    assert "\n" not in text


def test_auto_is_quiet_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(core, "available", cache(core._available.__wrapped__))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert core.choose("cpu", torch.float32) == "tiled"


def test_a_compiler_of_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = script(tmp_path / "wrapper", 'echo "$@" >> "$0.log"; exit 1\n')
    monkeypatch.setenv("CXX", f"{wrapper} 'the compiler' -m64")
    assert loader.compiler() == (str(wrapper), "the compiler", "-m64")
    with pytest.raises(Unsupported, match=r"could not be built with .* 'the compiler' -m64;"):
        loader.build(tmp_path / "cache")
    calls = Path(f"{wrapper}.log").read_text().splitlines()
    assert all(call.startswith("the compiler -m64 ") for call in calls)
    spaced = script(tmp_path / "my own c++", "exit 0\n")
    monkeypatch.setenv("CXX", str(spaced))
    assert loader.compiler() == (str(spaced),)


@pytest.mark.parametrize(
    ("name", "platform", "message"),
    [
        ("c++", "linux", r"needs a C\+\+ compiler, and there is no 'c\+\+' on the PATH"),
        ("ccache 'g++", "linux", r"No closing quotation.*; expected a C"),
        ("c++", "win32", "not on Windows: choose the implementation fused_tiled"),
    ],
)
def test_where_there_is_no_compiler(
    name: str, platform: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", name)
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(Unsupported, match=message):
        loader.compiler()


def test_flags_that_a_compiler_does_not_know_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Mock(wraps=loader._run)
    monkeypatch.setattr(loader, "_run", runs)
    assert loader.flags((str(script(tmp_path / "all", "exit 0\n")),)) == tuple(loader.WANTED)
    assert runs.call_count == 1
    unknown = loader.WANTED[0]
    text = f'case "$*" in *{unknown}*) exit 1;; esac\n'
    assert loader.flags((str(script(tmp_path / "some", text)),)) == tuple(loader.WANTED[1:])


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
    loader.build(tmp_path / "one")
    (library,) = (tmp_path / "one").glob("*/*.so")
    # Elsewhere: this process has loaded that one.
    other = tmp_path / "two" / library.relative_to(tmp_path / "one")
    other.parent.mkdir(parents=True)
    other.write_bytes(b"half of it")
    loader.build(tmp_path / "two")
    assert other.stat().st_size > 100
    assert len(stand_in) == 2


def test_the_key_is_of_all_that_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = (str(script(tmp_path / "one", "echo 1\n")),)
    two = (str(script(tmp_path / "two", "echo 2\n")),)
    keys = {loader.key(one, ()), loader.key(two, ()), loader.key(one, ("-O3",))}
    keys.add(loader.key((*one, "word"), ()))
    monkeypatch.setattr(torch, "__version__", "0")
    keys.add(loader.key(one, ()))
    monkeypatch.setattr(loader, "_processor", lambda: "another")
    keys.add(loader.key(one, ()))
    assert len(keys) == 6
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

    def built(cxx: loader.Command, used: tuple[str, ...], folder: Path) -> Path:
        library = folder / "it.so"
        library.write_bytes(b"whole")
        return library

    monkeypatch.setattr(loader, "_compile", built)
    loader._build(("c++",), (), tmp_path / "library.so")
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
@pytest.mark.nightly
def test_it_builds(tmp_path: Path) -> None:
    cxx = loader.compiler()
    library = loader._compile(cxx, loader.flags(cxx), tmp_path)
    code = f"import torch, ctypes; print(ctypes.CDLL({str(library)!r}).attnbench_register(None, 0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("used", [("-O3",), ("-O3", "-fopenmp")], ids=["one thread", "OpenMP"])
def test_openmp_is_linked_where_it_is_used(
    used: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        Path(command[command.index("-o") + 1]).touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(loader, "_run", run)
    loader._compile(("c++",), used, tmp_path)
    *compiled, linked = ran
    assert len(compiled) == len(loader.SOURCES)
    assert all(set(used) <= set(command) for command in compiled)
    assert any("gomp" in word for word in linked) == ("-fopenmp" in used)
