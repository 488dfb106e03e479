"""What is compared: works, arms, conditions, and the goals set beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.profile import load_profile
from harness.records import schema
from harness.records.published import CONTROL

CONDITIONS = ("idle", "busy")
"""Nothing else runs, as far as we know; one core kept busy by a process of our own."""


@dataclass(frozen=True)
class Problem:
    """Real work that all arms of a comparison do: one of `arms.WORKS`, and its sizes."""

    work: str
    sizes: tuple[Any, ...]

    @property
    def name(self) -> str:
        """As it reads in a record."""
        return "-".join([self.work, *map(str, self.sizes)])


@dataclass(frozen=True)
class Arm:
    """What is timed: so many identical calls of a problem's work as one call."""

    name: str
    calls: int


BASE_CALLS = 20
ARMS = (
    Arm(CONTROL, 20),
    Arm("same", 20),
    Arm("10 % slower", 22),
    Arm("5 % slower", 21),
)
"""Each is timed in turn with a base of `BASE_CALLS`; the control is bench's A/A control."""


@dataclass(frozen=True)
class Goal:
    """Which share of an arm's comparisons may, or must, be told apart from the base."""

    arm: str
    at_most: float | None = None
    at_least: float | None = None

    def met(self, count: int, total: int) -> bool:
        """Whether `count` of `total` is good enough."""
        if self.at_most is not None:
            return count <= self.at_most * total + 1e-9
        assert self.at_least is not None
        return count >= self.at_least * total - 1e-9


GOALS = (
    Goal("same", at_most=15 / 200),
    Goal("10 % slower", at_least=0.95),
    Goal("5 % slower", at_least=0.80),
)

PROBLEMS = (
    *(Problem("product", (size,)) for size in (80, 96, 128, 160, 192)),
    *(Problem("batched", sizes) for sizes in ((16, 32), (32, 48), (8, 64))),
    *(Problem("elementwise", (size,)) for size in (8192, 16384, 65536, 131072)),
    *(Problem("softmax", sizes) for sizes in ((64, 256), (256, 512))),
    *(Problem("layer_norm", sizes) for sizes in ((64, 256), (256, 600))),
    Problem("mechanism", ("multi_head.sdpa", 16, 64, 4)),
    Problem("mechanism", ("multi_head.sdpa", 64, 64, 8)),
    Problem("mechanism", ("bi_lstm.packed", 4, 32, 0)),
    Problem("mechanism", ("multi_cnn.conv", 8, 48, 0)),
)
"""Twenty calls of one take 0.2 to 5 ms."""


@dataclass(frozen=True)
class Plan:
    """A calibration; two with one `id` measure the same.

    ``comparisons`` are of each arm, under each condition: the problems in turn, again and again.
    Blocks are fresh interpreters; an arm has at least so many rounds, and so much time, in each.
    """

    comparisons: int
    blocks: int
    rounds: int
    seconds: float
    problems: tuple[Problem, ...] = PROBLEMS

    def __post_init__(self) -> None:
        if self.comparisons < 1 or self.blocks < 2:
            raise UsageError(
                f"given {self.comparisons} comparisons, {self.blocks} blocks; expected one or more "
                "and two or more (one block gives no interval)"
            )

    @property
    def repeats(self) -> int:
        """How often the problems are gone through in a block."""
        return -(-self.comparisons // len(self.problems))

    def of_repeat(self, repeat: int) -> tuple[Problem, ...]:
        """The problems of one passage; of the last perhaps not all."""
        return self.problems[: self.comparisons - repeat * len(self.problems)]

    def pairs(self) -> Iterator[tuple[int, Problem]]:
        """Every comparison as (repeat, problem)."""
        for repeat in range(self.repeats):
            for problem in self.of_repeat(repeat):
                yield repeat, problem

    def described(self) -> dict[str, Any]:
        """As JSON, for the journal."""
        return asdict(self) | {"arms": [asdict(arm) for arm in ARMS], "base_calls": BASE_CALLS}

    @property
    def id(self) -> str:
        """Short hash of all that the plan says."""
        return schema.digest(self.described())


def from_description(value: Mapping[str, Any]) -> Plan:
    """Read a plan from the journal.

    Raises
    ------
    UsageError
        If it is none, or its arms are not today's.
    """
    try:
        problems = tuple(Problem(p["work"], tuple(p["sizes"])) for p in value["problems"])
        sizes = (value["comparisons"], value["blocks"], value["rounds"], value["seconds"])
        plan = Plan(*sizes, problems)
    except (KeyError, TypeError) as error:
        raise UsageError(f"a record's plan can't be read ({error}); give other records") from None
    described = plan.described()
    if any(value.get(name) != described[name] for name in ("arms", "base_calls")):
        raise UsageError("these records compare other arms than today's; measure again")
    return plan


def standard(comparisons: int, blocks: int) -> Plan:
    """The plan with the sampling of bench's quick profile."""
    profile = load_profile("quick", "cpu")
    return Plan(comparisons, blocks, profile.min_rounds, profile.seconds)


def short() -> Plan:
    """A self-test: four problems, two blocks. It proves nothing of the measuring."""
    plan = standard(4, 2)
    return replace(plan, seconds=0.01, problems=PROBLEMS[:1] + PROBLEMS[5:6] + PROBLEMS[12:14])
