"""A Ray cluster without nodes, played without Ray: `test_ray.py` has a real one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harness.errors import UsageError
from harness.experiments.executors import Job
from harness.experiments.executors import ray as ray_executor
from harness.experiments.executors.node import KIND
from harness.experiments.executors.ray import RayExecutor


class NoNodes:
    """What the executor asks of Ray while a job waits for a node."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.living = nodes

    def nodes(self) -> list[dict[str, Any]]:
        return self.living

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return [], references


NODE = {"Alive": True, "Resources": {"CPU": 2.0}}


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> RayExecutor:
    monkeypatch.setattr(ray_executor, "DESERTED_SECONDS", 0.05)
    monkeypatch.setattr(ray_executor, "COUNT_SECONDS", 0.0)
    made = RayExecutor(dict.fromkeys(KIND, "x"), "head:6379")
    monkeypatch.setattr(made, "_submit", lambda job: job.label)
    return made


def jobs() -> Any:
    yield Job(key="k", label="a run", call="m:f", arguments={}, code="c", data="")


def test_a_cluster_without_a_node_is_given_up_with_the_reason(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_ray", NoNodes([{**NODE, "Alive": False}]), raising=False)
    with pytest.raises(UsageError, match=r"head:6379 has had no node .* finished runs are kept"):
        next(executor.run(jobs(), lambda _: None))


def test_a_busy_cluster_is_waited_for(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_ray", NoNodes([NODE]), raising=False)
    enough = time.monotonic() + 0.2

    def on_tick(_: object) -> None:
        if time.monotonic() > enough:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(executor.run(jobs(), on_tick))
