"""What happens on a node of a cluster: one run, in a process of its own, if the node is like ours.

The worker of the cluster does not train itself. It keeps an interpreter and gives it the run, as
`local` does: limits hold, a segmentation fault or lack of memory is a result of the run and is told
from the death of a node (which alone is tried again), and no run sees what an earlier one left in
the process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import run_code
from harness.experiments.executors import PRELOAD
from harness.experiments.executors.local import VISIBLE
from harness.isolate import Interpreter, Limits
from harness.measure.device import fingerprint
from harness.registry import Registry, resolve
from harness.train.data.corpora import data_digest
from harness.train.task import task as find_task

INSIDE = "harness.experiments.executors.node:inside"
KIND = ("device", "model", "driver", "cuda", "torch", "python")
"""What of a fingerprint has to be the same on all nodes: it can change a result."""


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
