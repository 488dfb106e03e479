"""The score for people: rows and sentences, in the terminal and in docs/results."""

from __future__ import annotations

from suites.programs.calibration.plan import Goal
from suites.programs.calibration.score import ATTNBENCH, ONE_RUN, POOLED, Score, Share
from suites.programs.command import markdown_table

JUDGES = (ATTNBENCH, ONE_RUN, POOLED)
SAYS = {"same": "equal work (A/A): false alarms"}


def _wanted(goal: Goal | None, total: int) -> str:
    if goal is None:
        return ""
    if goal.at_most is not None:
        return f"at most {goal.at_most * total:g} of {total}"
    return f"at least {goal.at_least:.0%}"


def _shown(share: Share) -> str:
    if not share.total:
        return "-"
    return f"{share.count} of {share.total} ({share.count / share.total:.1%})"


def rows(score: Score) -> list[list[str]]:
    """Condition, what is counted, the goal, and one column per judge."""
    by = {(s.condition, s.arm, s.judge): s for s in score.shares}
    pairs = dict.fromkeys((s.condition, s.arm) for s in score.shares)
    return [
        [
            condition,
            SAYS.get(arm, f"{arm}: found"),
            _wanted(by[condition, arm, ATTNBENCH].goal, by[condition, arm, ATTNBENCH].total),
            *(_shown(by[condition, arm, judge]) for judge in JUDGES),
        ]
        for condition, arm in pairs
    ]


HEADS = ["condition", "", "goal", *JUDGES]


def sentences(score: Score) -> list[str]:
    """What was measured, how noisy it was, and what is missing."""
    plan = score.plan
    said = [
        f"{plan.comparisons} comparisons of each kind in {plan.blocks} blocks; {plan.seconds:g} s "
        f"and at least {plan.rounds} samples per arm and block, one thread; "
        f"{len(plan.problems)} different works."
    ]
    said += [
        f"{n.condition}: load {n.load[0]:.1f} to {n.load[1]:.1f}; the arms waited for a core "
        f"{n.waited:.1%} of the time; median noise floor {n.spread:.1%}."
        for n in score.noise
    ]
    said += [
        f"{condition}: {count} comparisons are not complete and not counted; start again."
        for condition, count in score.missing.items()
        if count
    ]
    return said


def markdown(score: Score) -> str:
    """The table of docs/results, with its sentences below."""
    return markdown_table(HEADS, rows(score)) + "\n\n" + "\n".join(sentences(score))
