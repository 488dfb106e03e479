"""Jobs on an existing Ray cluster (extra ``cluster``). Ray is imported when it is used.

On a node one run is done in a process of its own, if the node is like ours. The worker of the
cluster does not train itself. It keeps an interpreter and gives it the run, as `local` does: limits
hold, a segmentation fault or lack of memory is a result of the run and is told from the death of a
node (which alone is tried again), and no run sees what an earlier one left in the process.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from harness.errors import UsageError
from harness.experiments.design import run_code
from harness.experiments.executors import LIMIT_SECONDS, PRELOAD, Job, Jobs, OnTick, Standing
from harness.experiments.executors.local import VISIBLE
from harness.isolate import Interpreter, Limits, Outcome
from harness.isolate.outcome import one_line
from harness.isolate.pool import POLL_SECONDS
from harness.measure.device import fingerprint
from harness.registry import Registry, resolve
from harness.train.data.corpora import data_digest
from harness.train.task import task as find_task

INSIDE = "harness.experiments.executors.ray:inside"
KIND = ("device", "model", "driver", "cuda", "torch", "python")
"""What of a fingerprint has to be the same on all nodes: it can change a result."""
AHEAD = 2
"""Jobs handed to the cluster per job that it can do at a time: no worker waits for the driver, and
a cluster that grows sees what is wanted."""
REACH_SECONDS = 10.0
COUNT_SECONDS = 5.0
"""How often the nodes are counted."""
DESERTED_SECONDS = 600.0
"""A cluster may be without a node for so long, while one is replaced, say."""


def import_ray() -> ModuleType:
    """The library.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"--executor ray: can't import ray ({error}); pip install -e '.[cluster]'"
        ) from None
    return ray  # type: ignore[no-any-return,unused-ignore]


class RayExecutor:
    """Does jobs on the nodes of a cluster.

    A job that dies with its node or its worker is tried again elsewhere, by Ray. What becomes of
    a job on a living node (a crash, too little memory) is its outcome.

    Parameters
    ----------
    fingerprint : mapping
        The driver's; nodes have to be of its kind.
    address : str
        Of the cluster: ``auto``, ``host:port``, ``ray://host:port``.
    cpus, gpus : float
        What one job takes of a node.
    retries : int
        How often a job is tried again.

    Raises
    ------
    UsageError
        On entering: if there is no ray, no cluster, or no node with so much.
    """

    def __init__(
        self,
        fingerprint: Mapping[str, Any],
        address: str = "auto",
        cpus: float = 1.0,
        gpus: float = 0.0,
        retries: int = 3,
    ) -> None:
        self._kind = {name: fingerprint[name] for name in KIND}
        self._address, self._cpus, self._gpus, self._retries = address, cpus, gpus, retries
        self._workers, self._counted, self._peopled = 0, -math.inf, time.monotonic()

    def __enter__(self) -> Self:
        self._ray = import_ray()
        try:
            _reach(self._address)
            self._ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--address {self._address}: no Ray cluster ({one_line(str(error))}); start one "
                "with: ray start --head, or give its address"
            ) from None
        if not self._recount(at_once=True):
            self._ray.shutdown()
            raise UsageError(
                f"no node of the cluster has {self._cpus:g} CPUs and {self._gpus:g} GPUs for a "
                "run; see --cpus-per-run, --gpus-per-run"
            )
        self._limits = asdict(Limits(LIMIT_SECONDS, self._memory_share()))
        on_a_node = self._ray.remote(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_retries=self._retries,
            scheduling_strategy="SPREAD",
        )
        self._perform = on_a_node(perform)
        return self

    def __exit__(self, *error: Any) -> None:
        self._ray.shutdown()

    @property
    def workers(self) -> int:
        """Jobs that the living nodes can do at a time; 1 while there are none."""
        return max(1, self._recount())

    def run(self, jobs: Jobs, on_tick: OnTick) -> Iterator[tuple[Job, Outcome]]:
        """Do all jobs; see `harness.experiments.executors.Executor`.

        Raises
        ------
        UsageError
            If no node is left, and none comes for `DESERTED_SECONDS`.
        """
        under_way: dict[Any, Job] = {}
        began: dict[str, float] = {}
        more = True
        while more or under_way:
            while more and len(under_way) < AHEAD * self.workers:
                try:
                    job = next(jobs)
                except StopIteration:
                    more = False
                    break
                if job is None:
                    break
                under_way[self._submit(job)] = job
            if under_way:
                done, _ = self._ray.wait(list(under_way), num_returns=1, timeout=POLL_SECONDS)
            else:
                done = []
                if more:
                    time.sleep(POLL_SECONDS)
            for reference in done:
                job = under_way.pop(reference)
                began.pop(job.key, None)
                yield job, self._outcome(reference)
            # Ray would wait for ever, and nobody would know for what.
            if not self._recount() and time.monotonic() - self._peopled > DESERTED_SECONDS:
                raise UsageError(
                    f"the cluster {self._address} has had no node for "
                    f"{DESERTED_SECONDS / 60:.0f} min; finished runs are kept: start nodes, and "
                    "the same command goes on"
                )
            # How far a run is stands in a file of its node, which the driver does not see; but as
            # many as there is room for are running, the first submitted first.
            now = time.monotonic()
            for job in list(under_way.values())[: self.workers]:
                began.setdefault(job.key, now)
            on_tick({key: Standing(now - begun) for key, begun in began.items()})

    def _recount(self, at_once: bool = False) -> int:
        now = time.monotonic()
        if at_once or now - self._counted >= COUNT_SECONDS:
            self._workers, self._counted = sum(map(self._room, self._nodes())), now
        if self._workers:
            self._peopled = self._counted
        return self._workers

    def _submit(self, job: Job) -> Any:
        call = {"call": job.call, "arguments": dict(job.arguments), "code": job.code}
        return self._perform.options(name=job.label).remote(
            {**call, "kind": self._kind}, self._limits, job.data
        )

    def _outcome(self, reference: Any) -> Outcome:
        """What became of a job; `UsageError` if its node can't do our jobs at all."""
        errors = self._ray.exceptions
        try:
            told = self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, OtherNode):
                raise UsageError(str(error.cause)) from None
            raise UsageError(
                f"a node of the cluster can't run attnbench: {_last_line(str(error))}; "
                "install the same attnbench on every node"
            ) from None
        except errors.OutOfMemoryError:
            return Outcome("oom", None, "Ray ended it: its node ran out of memory")
        except errors.RayError as error:
            times = f"{self._retries + 1} time{'s' if self._retries else ''}"
            return Outcome("crash", None, f"lost with its node {times} ({type(error).__name__})")
        outcome = Outcome(**told["outcome"])
        if outcome.error == OtherNode.__name__:
            raise UsageError(outcome.detail.removeprefix(f"{outcome.error}: "))
        if isinstance(outcome.value, dict | None):
            outcome = replace(outcome, value={**(outcome.value or {}), "node": told["node"]})
        return outcome

    def _nodes(self) -> list[Mapping[str, float]]:
        """Resources of the living nodes."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _room(self, node: Mapping[str, float]) -> int:
        """Jobs that a node can do at a time."""
        wanted = {"CPU": self._cpus, "GPU": self._gpus}
        return min(int(node.get(name, 0.0) / n + 1e-9) for name, n in wanted.items() if n)

    def _memory_share(self) -> int | None:
        """Bytes for one job, so that those of any node fit in it; None on GPUs, or if unknown."""
        if self._gpus:
            return None
        shares = [
            int(node["memory"] / self._room(node))
            for node in self._nodes()
            if node.get("memory") and self._room(node)
        ]
        return min(shares, default=None)


def _reach(address: str) -> None:
    """Raise OSError or ValueError if nobody answers at ``host:port``: Ray tries for minutes.

    Names as ``auto`` are left to it.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "no reason given"


# On a node.


class OtherNode(Exception):
    """A node has other code, or is of another kind, than the driver: no run of ours is done."""


def perform(job: Mapping[str, Any], limits: Mapping[str, Any], data: str) -> dict[str, Any]:
    """Do one job; runs in a worker of the cluster.

    Parameters
    ----------
    job : mapping
        Arguments of `inside`.
    limits : mapping
        Fields of a `Limits`.
    data : str
        Digest of the driver's data files; empty if the job reads none.

    Returns
    -------
    dict
        ``outcome``, fields of an `Outcome`; ``node``, the host's name.

    Raises
    ------
    OtherNode
        If the data here are others.
    """
    told = job["arguments"]
    if data and data != _data(told["task"], told["directory"], told["vectors"]):
        raise OtherNode(
            f"node {socket.gethostname()} has other data in {told['directory']} than this machine; "
            "put the same files there on every node"
        )
    # A worker may be given another GPU for its next job.
    outcome = _interpreter(os.environ.get(VISIBLE)).run(INSIDE, job, Limits(**limits))
    return {"outcome": asdict(outcome), "node": socket.gethostname()}


@cache
def _interpreter(visible: str | None) -> Interpreter:
    """An interpreter of this worker; it ends with it."""
    return Interpreter("fork", preload=PRELOAD)


@cache
def _data(task: str, directory: str, vectors: str) -> str:
    """Digest of the data here: once in a worker, for a file of vectors may be large."""
    try:
        return data_digest(find_task(task), Path(directory), vectors)
    except UsageError as error:
        raise OtherNode(f"node {socket.gethostname()}: {error}") from None


def inside(call: str, arguments: Mapping[str, Any], code: str, kind: Mapping[str, Any]) -> Any:
    """Make a call, if code and machine are the driver's; runs in a child of the worker.

    Parameters
    ----------
    call : str
    arguments : mapping
        With ``model``, ``task`` and ``given``, whose code is compared.
    code : str
        Hash of the driver's.
    kind : mapping
        `KIND` of the driver's fingerprint.

    Raises
    ------
    OtherNode
        If something differs.
    """
    here = socket.gethostname()
    load = find_task(arguments["task"]).load
    found = run_code(arguments["model"].rpartition(".")[0], load, Registry(arguments["given"]))
    if found != code:
        raise OtherNode(
            f"node {here} has other code for {arguments['model']} ({found}, this machine {code}); "
            "install the same attnbench on every node"
        )
    own = fingerprint(kind["device"])
    differs = [f"{k} {own[k]}, this machine {kind[k]}" for k in KIND if own[k] != kind[k]]
    if differs:
        raise OtherNode(
            f"node {here} is of another kind ({'; '.join(differs)}); "
            "records of a sweep are of one kind of machine, this one's"
        )
    return resolve(call)(**without_far_checkpoint(arguments))


def without_far_checkpoint(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Without ``checkpoint`` if this node has no such folder: nobody would ever read it there."""
    if "checkpoint" in arguments and not Path(arguments["checkpoint"]).parent.is_dir():
        return {k: v for k, v in arguments.items() if not k.startswith("checkpoint")}
    return dict(arguments)
