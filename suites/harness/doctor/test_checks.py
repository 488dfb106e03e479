"""The doctor: every fault is told with what to do; a machine without faults is ready."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.doctor.checks import Diagnosis, judge
from harness.doctor.facts import Attempt, Facts

H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "capability": [9, 0],
    "bytes": 80 * 2**30,
    "free_bytes": 79 * 2**30,
    "shared_bytes": 227 * 1024,
}
TORCH: dict[str, Any] = {
    "torch": "2.13.0+cu128",
    "built": "12.8",
    "archs": ["sm_80", "sm_90", "compute_90"],
    "error": "",
    "gpus": [H100],
}
CPU_TORCH: dict[str, Any] = {**TORCH, "torch": "2.13.0+cpu", "built": None, "archs": [], "gpus": []}
STATE = {
    **{"sm_mhz": 1980, "most_sm_mhz": 1980, "celsius": 40, "busy_percent": 0, "processes": 0},
    "throttle_reasons": 1,  # idle
}
BOX = Facts(
    device="auto",
    python="3.11.7",
    headers=True,
    torch=TORCH,
    driver="570.86",
    driver_cuda=(12, 8),
    gpus=(H100["name"],),
    state=STATE,
    c="/usr/bin/gcc (gcc 12.2.0)",
    cxx="/usr/bin/c++ (c++ 12.2.0)",
    triton="3.9.0",
    ptxas="ptxas 12.9",
    data="/data",
    files={"right": 29, "missing": 1},
    journal="results",
    memory=100 * 2**30,
    disk=100 * 2**30,
    busy=0.01,
    compiled=Attempt(9.0),
    launched=Attempt(9.0),
)
"""A GPU box without faults."""
LAPTOP = replace(
    BOX, torch=CPU_TORCH, driver="", driver_cuda=(), gpus=(), state={}, triton="", ptxas=""
)
UNSEEN = {**TORCH, "gpus": [], "error": "CUDA driver version is insufficient"}


def faults(facts: Facts) -> dict[str, Diagnosis]:
    return {f.what: f for f in judge(facts) if f.state != "ok"}


@pytest.mark.parametrize("facts", [BOX, LAPTOP], ids=["GPU box", "laptop"])
def test_a_machine_without_faults_is_ready(facts: Facts) -> None:
    assert faults(facts) == {}
    assert all(not f.advice for f in judge(facts))
    assert all(f.found for f in judge(facts))


@pytest.mark.parametrize(
    ("changes", "what", "state", "advice"),
    [
        ({"driver_cuda": (11, 4)}, "driver", "bad", "torch is built for CUDA 12.8: update the dri"),
        ({"torch": CPU_TORCH}, "torch", "bad", "a build of torch for CUDA .* up to 12.8"),
        ({"torch": UNSEEN}, "GPU", "bad", "--device cpu"),
        ({"torch": {**TORCH, "archs": ["sm_80"]}}, "GPU", "bad", "torch has code for sm_80"),
        ({"c": ""}, "C compiler", "bad", "install gcc or set CC: Triton compiles with it"),
        ({"headers": False}, "Python headers", "bad", "python3-dev"),
        ({"triton": ""}, "Triton", "bad", "pip install triton"),
        ({"ptxas": ""}, "Triton", "bad", "TRITON_PTXAS_PATH"),
        ({"cxx": ""}, "C++ compiler", "note", r"install g\+\+ or set CXX"),
        ({"compiled": Attempt(1.0, "crash: no")}, "one compilation", "bad", "mend the compiler"),
        ({"launched": Attempt(1.0, "x wrong: y")}, "one checked launch", "bad", "attnbench verify"),
        ({"data_error": "no folder"}, "data folder", "bad", ""),
        ({"files": {"wrong": 2}}, "data folder", "bad", "attnbench data check"),
        ({"files": {"missing": 30}}, "data folder", "bad", "attnbench data check"),
        ({"journal_error": "/r: Permission denied"}, "results", "bad", "--journal"),
        ({"memory": 2**30}, "memory", "bad", "free some"),
        ({"disk": 2**20}, "disk", "bad", "free some"),
        ({"busy": 0.5}, "quiet", "note", "stop other work"),
        ({"state": {**STATE, "busy_percent": 80}}, "quiet GPU", "note", "CUDA_VISIBLE_DEVICES"),
        ({"state": {**STATE, "processes": 2}}, "quiet GPU", "note", "stop other work on it"),
        ({"state": {**STATE, "throttle_reasons": 0x24}}, "clocks", "note", "wait until it is cool"),
    ],
)
def test_each_fault_of_a_gpu_box_is_told_with_what_to_do(
    changes: Mapping[str, Any], what: str, state: str, advice: str
) -> None:
    found = faults(replace(BOX, **changes))
    assert found[what].state == state
    assert found[what].advice or what == "data folder"
    assert re.search(advice, found[what].advice)
    torch_blind = changes.get("torch") in (CPU_TORCH, UNSEEN)  # then the GPU is unseen too
    assert set(found) == {what, *(["GPU"] if torch_blind else [])}


def test_why_torch_does_not_see_a_gpu_is_quoted_and_both_reasons_of_lower_clocks_named() -> None:
    gpu = faults(replace(BOX, torch=UNSEEN))["GPU"]
    assert H100["name"] in gpu.found
    assert "CUDA driver version is insufficient" in gpu.found
    found = faults(replace(BOX, state={**STATE, "throttle_reasons": 0x24}))
    assert "power cap, temperature" in found["clocks"].found


@pytest.mark.parametrize(
    ("archs", "right"),
    [
        (["sm_80", "sm_90"], True),
        (["sm_90a"], True),
        (["sm_86", "sm_100"], False),
        (["sm_80", "compute_80"], True),
        (["compute_100"], False),
    ],
)
def test_code_for_an_older_card_of_the_same_generation_or_compiled_later_will_do(
    archs: list[str], right: bool
) -> None:
    assert ("GPU" not in faults(replace(BOX, torch={**TORCH, "archs": archs}))) == right


HIDDEN = replace(BOX, hidden=True, torch={**TORCH, "gpus": []}, state={})
BARE = replace(LAPTOP, headers=False, c="")
BROKEN: dict[str, Any] = {"torch": UNSEEN, "driver_cuda": (11, 4), "c": "", "triton": ""}
EMPTY: dict[str, Any] = {"gpus": (), "torch": {**TORCH, "gpus": []}, "state": {}}
NO_CXX: dict[str, Any] = {"cxx": "", "compiled": Attempt(1.0, "crash: no c++")}


@pytest.mark.parametrize(
    ("facts", "states"),
    [
        # A laptop is not asked for what only a GPU needs, and measures without a compiler.
        (BARE, {}),
        (replace(LAPTOP, **NO_CXX), {"C++ compiler": "note", "one compilation": "note"}),
        # A GPU that is hidden on purpose, or does not work, is no fault of who measures the CPU.
        (HIDDEN, {"GPU": "note"}),
        (replace(BOX, device="cpu", **BROKEN), {"driver": "note", "GPU": "note"}),
        # Who asks for a GPU is told that there is none.
        (replace(HIDDEN, device="cuda"), {"GPU": "bad"}),
        (replace(LAPTOP, device="cuda"), dict.fromkeys(("torch", "driver", "Triton"), "bad")),
        (replace(BOX, device="cuda", **EMPTY), {"GPU": "bad"}),
        # And so is who asks for nothing: `bench` refuses there.
        (replace(BOX, **EMPTY), {"GPU": "bad"}),
        (replace(BOX, device="cpu", **EMPTY), {"GPU": "note"}),
    ],
)
def test_what_is_a_fault_depends_on_what_was_asked_for(
    facts: Facts, states: dict[str, str]
) -> None:
    found = faults(facts)
    assert {what: f.state for what, f in found.items()} == states
    if facts is BARE:
        assert not {f.what for f in judge(facts)} & {"C compiler", "Triton", "clocks", "GPU"}
    if facts is HIDDEN:
        assert "unset CUDA_VISIBLE_DEVICES" in found["GPU"].advice


def test_what_was_not_looked_at_is_not_told_of() -> None:
    quick = replace(BOX, busy=None, compiled=None, launched=None, data="", files={})
    told = {f.what for f in judge(quick)}
    assert not told & {"one compilation", "one checked launch", "quiet", "data folder"}
