"""Evidence, regions and verdicts: three-way, or not testable here and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from harness.experiments.examples import HANGS
from harness.experiments.replicates import EXPLORATORY, unit_of
from harness.stats import MeanDifference
from reports.claims.printed import ROUNDING, PrintedNumber, size_text
from reports.claims.record import Claim

Answer = Literal["reproduced", "not reproduced", "undecided", "not testable here"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
RATIOS = ("time_ratio", "memory_ratio", "epoch_ratio")
"""Queries whose answer is a ratio of costs."""
AS_PUBLISHED = "as published"
NOT_MEASURED = "not measured yet"
"""How the reason of a verdict begins that a command could change."""


EQUAL = "practically equal"
"""What a declared comparison can say that leaves *better* undecided, and is a finding."""
WEAK = "a weak baseline"
STUCK = "some runs learned nothing"


@dataclass(frozen=True)
class Region:
    """Values that count as reproduced; `strict`: not the ends, as a difference excludes zero."""

    least: float
    most: float
    says: str
    strict: bool = False

    def side(self, value: float) -> int:
        """Whether a value lies below (-1), in (0) or above (1) it."""
        return (value > self.most) - (value < self.least)

    def judge(self, low: float, high: float) -> Answer:
        """Reproduced if the whole interval lies inside, not reproduced if it lies outside."""
        if math.isnan(low) or math.isnan(high):
            return "undecided"
        if self.strict:
            inside = low > self.least and high < self.most
            outside = high <= self.least or low >= self.most
        else:
            # An end is reached all the same where binary fractions just miss it.
            least, most = (_nearly(self.least, -1), _nearly(self.most, 1))
            inside = low >= least and high <= most
            outside = high < least or low > most
        return "reproduced" if inside else "not reproduced" if outside else "undecided"


def _nearly(end: float, sign: int) -> float:
    """An end of a region with room for the rounding of binary fractions."""
    return end + sign * ROUNDING * max(1.0, abs(end)) if math.isfinite(end) else end


def region(tolerance: Mapping[str, Any], published: PrintedNumber) -> Region:
    """Read the tolerance of a claim.

    A factor does not reach beyond equality: what was printed as faster is not reproduced by slower.

    Parameters
    ----------
    tolerance : mapping
        One of ``factor`` (published value times or over it), ``plus_minus`` (around the published
        value), ``alike`` (a ratio within it of 1), ``margin`` (a difference within it of 0),
        ``at_most``, ``at_least``, ``positive`` (a difference above 0).
    published : PrintedNumber
        Without a value where nothing is printed.

    Raises
    ------
    ValueError
        If it is none of these, or needs a published value.
    """
    if len(tolerance) != 1:
        raise ValueError(f"given tolerance {dict(tolerance)}; expected exactly one")
    ((kind, size),) = tolerance.items()
    value = published.value
    if kind in ("factor", "plus_minus") and math.isnan(value):
        raise ValueError(f"tolerance {kind} needs a published value")
    match kind:
        case "factor":
            says = f"within {size:g}x of {value:.3g}"
            least, most, side = value / size, value * size, published.side(1.0)
            if side < 0 and most > 1:
                return Region(least, 1.0, f"{says}, and at most 1")
            if side > 0 and least < 1:
                return Region(1.0, most, f"{says}, and at least 1")
            return Region(least, most, says)
        case "plus_minus":
            says = f"within {size:g} of {value:.4g}"
            return Region(value - size, value + size, says)
        case "alike":
            return Region(1 / size, size, f"alike: within {size:g}x of each other")
        case "margin":
            return Region(-size, size, f"a difference within {size:g}")
        case "at_most":
            return Region(-math.inf, size, f"at most {size:g}")
        case "at_least":
            return Region(size, math.inf, f"at least {size:g}")
        case "positive":
            return Region(0.0, math.inf, "above 0", strict=True)
    raise ValueError(f"given tolerance {kind!r}; see reports.claims.verdict.region")


class Precedence(NamedTuple):
    """Of several comparisons that answer a claim the one with the largest decides it; of costs,
    which each machine tells, there is `near` alone.
    """

    enough: bool = False  # runs to conclude from
    alike: bool = False  # trained so; the rest decides nothing
    early: bool = False  # declared before its runs
    planned: bool = False  # by a design file
    near: int = 0  # less, the further its models' names stand behind in the claim's lists
    common: bool = False  # by the recipe that the task has for all today
    together: int = 0  # comparisons that were declared with it
    at: str = ""  # when


UNRANKED = Precedence()


@dataclass(frozen=True)
class Evidence:
    """What a query found: a value with its interval (nan where there is none), a sentence, keys of
    the records behind it, the arithmetic line by line.

    `answer`: where the query itself decides (a test with a correction for several, say); None: the
    region of the claim does. `p`: of the test against no difference, where one counts among others
    (Holm); else nan. `equal`: the declared comparison says *practically equal*. `weak`: other forms
    of its baseline are better than that. `hangs`: it does not hold over seeds and test examples
    together. `stuck`: some runs say one class for all test examples. `precedence`: of several
    machines' evidence on what a model learns the highest counts.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    keys: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    answer: Answer | None = None
    p: float = math.nan
    precedence: Precedence = UNRANKED
    equal: bool = False
    weak: bool = False
    hangs: bool = False
    stuck: bool = False


def of_difference(
    d: MeanDifference,
    scale: float,
    said: str,
    keys: tuple[str, ...],
    answer: Answer | None = None,
    p: float = math.nan,
    precedence: Precedence = UNRANKED,
) -> Evidence:
    """A measured difference of means with its interval, times a scale; negative: turned round."""
    low, high = sorted((scale * d.low, scale * d.high))
    value = scale * d.difference
    return Evidence(value, low, high, said, keys, answer=answer, p=p, precedence=precedence)


@dataclass(frozen=True, kw_only=True)
class Verdict(Evidence):
    """What is said of a claim on one device, or without any: the evidence, judged.

    `published` is the published number in words, with the arithmetic that makes it a ratio, say;
    `wanted` what counts as reproduced; `device` its key, `page` a file of the report. `direction`,
    of a measured claim that is settled: ``as published``; ``more favourable`` or ``less
    favourable`` to the paper than what it printed; ``opposite`` to it. `hardware`, of costs that
    were measured: whether on the same class as the published ones. `told_on`: the key of the device
    whose evidence decides the claim, where it is another one's.
    """

    claim: Claim
    verdict: Answer
    published: str
    published_value: float
    wanted: str
    device: str
    page: str
    direction: str = ""
    hardware: str = ""
    told_on: str = ""

    @property
    def counted(self) -> bool:
        """Whether it counts: the paper's claim, and decided here."""
        return self.claim.counted and not self.told_on

    @property
    def said(self) -> str:
        """The verdict, with the direction of what is beside the published, or with what is lacking.

        What is `exploratory` is said to be.
        """
        if self.wants_records:
            return NOT_MEASURED
        more = [self.direction] * (self.settled and self.direction not in ("", AS_PUBLISHED))
        more += self.shades
        return f"{self.verdict} ({', '.join(more)})" if more else self.verdict

    @property
    def shades(self) -> tuple[str, ...]:
        """What stands behind the verdict wherever it is shown."""
        equal = self.equal and not self.settled
        lacks = filter(None, [self.claim.lacks])
        told = {
            EXPLORATORY: self.exploratory,
            EQUAL: equal,
            WEAK: self.weak and self.settled,
            STUCK: self.stuck and self.settled,
            HANGS: self.hangs and (self.settled or equal),
        }
        return *lacks, *(name for name, known in told.items() if known)

    @property
    def settled(self) -> bool:
        """Whether it says that the claim holds or that it does not."""
        return self.verdict in ("reproduced", "not reproduced")

    @property
    def exploratory(self) -> bool:
        """Whether it is settled by what was declared after its runs, or nowhere."""
        return self.settled and self.reason.startswith(f"{EXPLORATORY}: ")

    @property
    def id(self) -> str:
        """Of the claim."""
        return self.claim.id

    @property
    def failed_exactly(self) -> bool:
        """Whether it is an exact claim that does not hold: the exit code is then 1."""
        return self.claim.kind == "exact" and self.verdict == "not reproduced"

    @property
    def wants_records(self) -> bool:
        """Whether a command could change it from *not testable here*."""
        return self.verdict == "not testable here" and self.reason.startswith(NOT_MEASURED)

    @property
    def measured(self) -> str:
        """``1.21 [1.18, 1.24]``; empty without a value."""
        if math.isnan(self.value):
            return ""
        text = size_text(self.value)
        if not (math.isnan(self.low) or self.low == self.high):
            text += f" [{size_text(self.low)}, {size_text(self.high)}]"
        return text + self.unit

    @property
    def unit(self) -> str:
        """What stands behind a measured value: ``x`` of a ratio, `` points`` of accuracies."""
        if self.claim.query in RATIOS:
            return "x"
        if self.claim.query in ("accuracy_difference", "difference_over_tasks"):
            metric = self.claim.metric
            return unit_of(metric).of_differences or f" {metric}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """All of it, the claim's fields first."""
        of_claim = ("id", "item", "paper", "place", "line", "statement", "kind", "setup")
        found = ("published", "published_value", "wanted", "verdict", "reason")
        counted = ("sort", "whose", "same_as", "lacks")
        return {
            **{name: getattr(self.claim, name) for name in of_claim},
            **{name: getattr(self, name) for name in found},
            **{name: getattr(self.claim, name) for name in counted},
            **{name: getattr(self, name) for name in ("counted", "direction", "hardware", "value")},
            "unit": self.unit.strip(),
            **{name: getattr(self, name) for name in ("low", "high", "device", "page")},
            "records": list(self.keys),
            "arithmetic": list(self.steps),
            "note": self.claim.note,
        }
