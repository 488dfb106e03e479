"""Two revisions measured in one session: blocks, and in them case by case the sides in turn."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.diff.revisions import Revision
from harness.errors import UsageError
from harness.isolate import USAGE, Interpreter, Limits, Outcome, StartError, run
from harness.measure import call
from harness.measure import device as devices
from harness.options.groups import Selection
from harness.profile import Profile, load_profile
from harness.records import journal, schema

PLAN_CALL = "harness.diff.inside:plan"
TIME_CALL = "harness.diff.inside:time"
FINGERPRINT_CALL = "harness.measure.device:fingerprint"
SIDES = ("base", "control", "head")
"""The base stands for two: its second name is the A/A control, which sets the noise floor."""


@dataclass
class RevisionSession:
    """What is measured of two revisions that are checked out, and what came of it."""

    base: Revision
    head: Revision
    profile: Profile
    # cases, new, gone: ids of what both revisions, only the head, or only the base has.
    cases: Sequence[str]
    new: Sequence[str]
    gone: Sequence[str]
    # By label; they differ where the revisions have environments of their own.
    fingerprints: Mapping[str, Mapping[str, Any]]
    records: list[dict[str, Any]] = field(default_factory=list)  # as written to the journal
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def revision(self, side: str) -> Revision:
        """Whose code a side runs."""
        return self.head if side == "head" else self.base

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.fingerprints["head"]["device"])

    def measure(self, folder: Path, on_block: Callable[[int, float], None]) -> None:
        """Measure all blocks and write every record at once.

        A block is three fresh interpreters that live side by side and idle while one works. Every
        case runs in all three, one after the other in random order: what drifts slower than that
        cancels in the ratio, and each block draws a new memory layout. Called behind each with the
        number of blocks done and the seconds so far.
        """
        first = {
            "purpose": "diff",
            "run": self.id,
            "profile": self.profile.name,
            "environment": devices.environment(),
            "fingerprint": dict(self.fingerprints["head"]),
            "base_fingerprint": dict(self.fingerprints["base"]),
            "revisions": {r.label: [r.given, r.commit] for r in (self.base, self.head)},
            "new": list(self.new),
            "gone": list(self.gone),
        }
        begun, failed = time.monotonic(), set[str]()
        with journal.Writer(folder, first) as writer:
            for block in range(self.profile.blocks):
                self._block(block, failed, writer)
                on_block(block + 1, time.monotonic() - begun)

    def _block(self, block: int, failed: set[str], writer: journal.Writer) -> None:
        chance = random.Random(f"{self.id}-{block}")
        before = devices.machine_state()
        with ExitStack() as stack:
            interpreters = {
                side: stack.enter_context(self._interpreter(side))
                for side in chance.sample(SIDES, len(SIDES))
            }
            order = 0
            for case in chance.sample(self.cases, len(self.cases)):
                if case in failed:
                    continue
                # All three sides are tried before a case is given up: a case that fails in one
                # revision only is a finding.
                for side in chance.sample(SIDES, len(SIDES)):
                    interpreter = interpreters[side]
                    outcome = self._execute(interpreter, side, case)
                    record = self._record(side, case, block, interpreter, outcome)
                    self.records.append(writer.append({**record, "order": order}))
                    order += 1
                    if record["status"] != "ok":
                        failed.add(case)
            writer.append(
                {
                    "kind": "diff-block",
                    "run": self.id,
                    "block": block,
                    "interpreters": {side: i.id for side, i in interpreters.items()},
                    "start_seconds": {side: i.start_seconds for side, i in interpreters.items()},
                    "before": before,
                    "after": devices.machine_state(),
                }
            )

    def _interpreter(self, side: str) -> Interpreter:
        revision = self.revision(side)
        try:
            return call.interpreter(self.device, path=[revision.tree], python=revision.python)
        except StartError as error:
            raise revision.unfit(error) from None

    def _execute(self, interpreter: Interpreter, side: str, case: str) -> Outcome:
        arguments = {
            "tree": str(self.revision(side).tree),
            "case": case,
            "rounds": self.profile.min_rounds,
            "seconds": self.profile.seconds,
        }
        limits = Limits(self.profile.limit_seconds, call.free_bytes(self.device))
        fingerprint = self.fingerprints["head"]
        return call.ask(
            interpreter, TIME_CALL, arguments, limits, devices.TIME_ALLOCATOR, fingerprint
        )

    def _record(
        self, side: str, case: str, block: int, interpreter: Interpreter, outcome: Outcome
    ) -> dict[str, Any]:
        revision = self.revision(side)
        return {
            "kind": "diff",
            # The run is part of the key: times of two runs are never one another's.
            "key": schema.digest(["diff", self.id, revision.commit, side, case, block]),
            "run": self.id,
            "side": side,
            "revision": revision.commit,
            "case": case,
            "block": block,
            "fingerprint": schema.digest(dict(self.fingerprints[revision.label])),
            **call.record(outcome, interpreter),
        }


def make_session(
    base: Revision, head: Revision, profile_name: str, device: str, selection: Selection
) -> RevisionSession:
    """Ask both revisions what they have, and on what they run.

    Raises
    ------
    UsageError
        For an unknown device or profile, a name that neither revision has, a selection that can't
        be, or a revision that does not work with this harness.
    """
    fingerprints = {"head": _ask(head, FINGERPRINT_CALL, {"device": device})}
    fingerprints["base"] = fingerprints["head"]
    if base.python != head.python:
        fingerprints["base"] = _ask(base, FINGERPRINT_CALL, {"device": device})
    device = str(fingerprints["head"]["device"])
    if fingerprints["base"]["device"] != device:
        raise UsageError(
            f"{base.says} would run on {fingerprints['base']['device']}, {head.says} on {device}; "
            "give --device"
        )
    profile = load_profile(profile_name, device)
    if selection.blocks is not None:
        profile = replace(profile, blocks=selection.blocks)
    arguments = {"profile": profile_name, "device": device, "selection": asdict(selection)}
    plans = {r.label: _ask(r, PLAN_CALL, {"tree": str(r.tree), **arguments}) for r in (base, head)}
    for name, says in plans["head"]["missing"].items():
        if name in plans["base"]["missing"]:
            raise UsageError(f"{says} (neither revision has it)")
    before, after = plans["base"]["cases"], plans["head"]["cases"]
    return RevisionSession(
        base,
        head,
        profile,
        [case for case in after if case in before],
        [case for case in after if case not in before],
        [case for case in before if case not in after],
        fingerprints,
    )


def _ask(revision: Revision, call: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer of a child that runs under a revision's mechanisms."""
    try:
        where: dict[str, Any] = {"path": [revision.tree], "python": revision.python}
        outcome = run(call, arguments, Limits(seconds=120), preload=(), **where)
    except StartError as error:
        raise revision.unfit(error) from None
    if outcome.error == USAGE:
        raise UsageError(outcome.detail)
    if outcome.status != "ok":
        raise revision.unfit(outcome.detail)
    return dict(outcome.value)
