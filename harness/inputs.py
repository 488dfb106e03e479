"""Inputs that a module can't have seen: contents drawn from a secret, in a pool of buffers.

The same numbers are drawn again from the same secret, in another process: what a call gave can be
compared with what a fresh module gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random, SystemRandom
from zlib import crc32

import torch

from harness.build import torch_dtype
from harness.case import ITEM_BYTES, Case

# Bound before any foreign code is imported.
_DRAW = SystemRandom()
secret = partial(_DRAW.getrandbits, 63)
"""A number that nobody can know."""
below = _DRAW.randrange
"""A secret number below another."""
_RANDOM = torch.default_generator

DRAWN = 2**18
"""Numbers that are drawn in truth; longer rows repeat them, each time rolled and with a sign."""
MOST_SHIFT = 2**16
SCALES = (0.9, 1.1)
"""An input begins at one of so many places, and its columns are scaled by numbers between these
that are cut so too: of what was computed of another one nothing is of use."""
SPARE = 2
"""Buffers more than a sample has calls, so that an address says nothing of the call's number."""
MOST_BYTES = 64 * 2**20
MOST_BUFFERS = 512
"""A sample has no more calls than there is room for; none that reads its input needs as many."""

ELEMENTS = 64
"""Numbers of a tensor that are compared."""

INPUT, OUTPUT = "the input", "the output"
"""Names of results: what a call was given must be there when it is done."""


def gradient_of(name: str) -> str:
    """Name of the gradient of a weight, or of `INPUT`."""
    return f"the gradient of {name}"


def is_finite(result: torch.Tensor) -> bool:
    """Whether all its numbers are.

    Each is read once. `torch.isfinite` compares it with itself, by two readings: one that a thread
    of the module's fills meanwhile would be told to be NaN.
    """
    return bool((result.abs() < math.inf).all())


Inputs = tuple[torch.Tensor, ...]
"""The input, in training also the gradient of the output."""


class InputSource:
    """What the inputs of a case are cut from.

    Parameters
    ----------
    case : Case
    output : {"tokens", "sentence"}
        Of its mechanism.
    seed : int
        A secret.
    """

    def __init__(self, case: Case, output: str, seed: int) -> None:
        p = case.problem
        self.shapes: list[tuple[int, ...]] = [(p.batch, p.length, p.d_in)]
        self.shapes += [p.output_shape(output)] if p.phase == "training" else []
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.bytes = sum(self.sizes) * ITEM_BYTES[p.dtype]
        self.seed = seed
        most = max(self.sizes)
        numbers = _normal(most + MOST_SHIFT, seed)
        self._numbers = numbers.to(device=p.device, dtype=torch_dtype(p.dtype))
        widest = max(shape[-1] for shape in self.shapes)
        draw = torch.Generator().manual_seed(seed)
        scales = torch.empty(MOST_SHIFT + widest).uniform_(*SCALES, generator=draw)
        self._scales = scales.to(self._numbers)

    def cuts(self, seed: int, calls: int) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
        """Of each call of a sample views of the source, and what they are multiplied by."""
        draw = Random(seed)
        for _ in range(calls):
            found = []
            for size, shape in zip(self.sizes, self.shapes, strict=True):
                at, of = draw.randrange(MOST_SHIFT), draw.randrange(MOST_SHIFT)
                scales = self._scales[of : of + shape[-1]]
                found.append((self._numbers[at : at + size].view(shape), scales))
            yield found

    def pieces(self, seed: int, calls: int) -> Iterator[Inputs]:
        """Inputs of the calls of one sample; another seed gives others."""
        for cut in self.cuts(seed, calls):
            yield tuple(view * scale for view, scale in cut)


def _normal(count: int, seed: int) -> torch.Tensor:
    """Standard-normal numbers at the cost of a copy; drawing each can take longer than a pass."""
    drawn = torch.randn(min(count, DRAWN), generator=torch.Generator().manual_seed(seed))
    numbers, draw = torch.empty(count), Random(seed)
    for start in range(0, count, DRAWN):
        piece = numbers[start : start + DRAWN]
        sign = draw.choice((-1.0, 1.0))
        torch.mul(drawn.roll(draw.randrange(DRAWN))[: len(piece)], sign, out=piece)
    return numbers


def buffers(source: InputSource, count: int, leaf: bool) -> list[Inputs]:
    """Memory for so many inputs; with `leaf` their gradients are wanted."""
    made = [tuple(torch.empty_like(v) for v, _ in cut) for cut in source.cuts(0, count)]
    for x, *_ in made:
        x.requires_grad_(leaf)
    return made


class InputPool:
    """Buffers that are written anew before every sample, and given out in an order nobody knows."""

    def __init__(self, source: InputSource, held: Sequence[Inputs]) -> None:
        self._source, self._held = source, held
        self._written = [[part.detach() for part in parts] for parts in held]

    def write(self, seed: int, calls: int) -> list[Inputs]:
        """New contents for so many calls, and the buffers that hold them, in the calls' order."""
        chosen = _DRAW.sample(range(len(self._held)), calls)
        for which, cut in zip(chosen, self._source.cuts(seed, calls), strict=True):
            for buffer, (view, scale) in zip(self._written[which], cut, strict=True):
                torch.mul(view, scale, out=buffer)  # takes no longer than a copy
        return [self._held[which] for which in chosen]


def room(source: InputSource) -> int:
    """How many calls a sample may have for the pool to stay small; at least one."""
    return max(1, min(MOST_BUFFERS, MOST_BYTES // source.bytes))


def positions(seed: int, name: str, result: torch.Tensor) -> torch.Tensor:
    """Which numbers of a result are compared: indices into it as a flat row."""
    draw = torch.Generator().manual_seed(seed ^ crc32(name.encode()))
    return torch.randint(max(1, result.numel()), (ELEMENTS,), generator=draw).to(result.device)


def random_numbers(device: str) -> torch.Generator:
    """Where torch's random numbers on a device come from."""
    if device == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device()]
    return _RANDOM
