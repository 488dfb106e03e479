"""A wheel, installed into an environment of its own, answers as a clone does."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from suites.support.command_line import ROOT

pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel, and nothing of the clone."""

    wheel: Path
    folder: Path

    def attnbench(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the console script away from the clone."""
        return subprocess.run(
            [str(self.folder / "bin" / "attnbench"), *arguments],
            cwd=self.folder,
            env=_environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )


def _environment(folder: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    built = ["wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *built], check=True)
    (wheel,) = folder.glob("attnbench-*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    # What attnbench needs is taken from here; an editable install's own .pth file is not followed.
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (purelib / "needed.pth").write_text("".join(f"{path}\n" for path in sorted(others)))
    python = str(environment / "bin" / "python")
    installing = ["install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run([python, "-m", "pip", *installing], check=True)
    return Installed(wheel, environment)


def test_it_carries_the_notebooks_and_no_tests(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    ours = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {f"reports/notebooks/{name}" for name in ours} <= set(names)
    assert not [name for name in names if "/test_" in name and name != "suites/bench/test_bench.py"]


BENCH = "bench --only none.fused --lengths 8 --batch 2 --width 24 --heads 2 --blocks 1"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("list", "mtsa"),
        ("verify none --dtypes f64", "none.fused"),
        (f"{BENCH} --passes forward", "page with the figures"),
        ("compare none multi_head --seeds 2 --recipe epochs=1", "too few seeds"),
        ("report", "report/index.html"),
    ],
)
def test_it_answers_as_from_a_clone(installed: Installed, command: str, says: str) -> None:
    done = installed.attnbench(*command.split())
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert says in told
    assert "could not be made" not in told
    assert "Traceback" not in told
