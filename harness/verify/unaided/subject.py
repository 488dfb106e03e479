"""A module without oracle and what it is asked: fresh modules, points, answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.errors import UsageError
from harness.isolate.outcome import USAGE, kind_of, of_exception, one_line
from harness.registry import resolve
from harness.verify.batches import D_IN, D_OUT, HEADS, ragged
from harness.verify.budget import Deviation
from harness.verify.compare import OUTPUT, Computed, computed, numpy64, trained
from reference_impls.mechanism import Implementation, Mechanism

Lengths = tuple[int, ...]
"""Real tokens of each sample of a batch; the largest is N."""
SMALL: tuple[Lengths, ...] = tuple(ragged(n) for n in (1, 2, 7, 65))
LONG = 530
"""Tokens: beyond where a table, a window or a fast path may end."""
STEEP, STEEPER = 99, 100.0
"""At the point of this seed x is so many times as large: where a softmax subtracts no maximum, or
a mask only a little, it shows."""
ATTRIBUTE = "attnbench_declares"
DECLARABLE = ("straight-through", "stop-gradient", "dropout", "unused-weights")
"""What a module may say of itself in ``attnbench_declares``; see docs/own-mechanism.md."""


class Refused(Exception):
    """The module is wrong; the message says what was changed and what came of it."""


class Void(Exception):
    """Nothing can be said of the module; the message says why."""


@dataclass(frozen=True)
class Finding(Deviation):
    """How far something moved that should not have.

    `what` says what was changed, and what that changed: "a batch in another order changed the
    output".
    """

    where: str = ""  # at which point: "N=7, f64"
    hint: str = ""  # what to do about it

    def __str__(self) -> str:
        size = f"by {self.error:.2g}" if math.isfinite(self.error) else "to what is not finite"
        most = f"at most {self.budget:.1e}" if self.budget else "not a bit may change"
        told = f"{self.what} {size} ({self.where}; {most})"
        return f"{told}; {self.hint}" if self.hint else told


Check = Callable[["Subject"], Iterator[Finding] | None]
"""Yields all that it compared, if anything; raises `Refused` for what is no matter of size, or
`Void`."""


@dataclass(frozen=True)
class PosedBatch:
    """One batch."""

    x: torch.Tensor  # [B, N, d_in]; zero at padding
    real: torch.Tensor  # bool [B, N]; true for tokens
    cotangent: torch.Tensor  # of the output's shape; zero at padding
    where: str  # how findings name it
    drawn: tuple[Lengths, int]  # lengths and seed, whatever was made of it since

    def samples(self, picked: Sequence[int]) -> PosedBatch:
        """Some of its samples, in this order."""
        index = torch.tensor(picked, device=self.x.device)
        return replace(
            self, x=self.x[index], real=self.real[index], cotangent=self.cotangent[index]
        )

    def wider(self, count: int) -> PosedBatch:
        """The same with more padded positions."""
        pad = torch.nn.functional.pad
        more = (0, 0, 0, count)
        tokens = self.cotangent.dim() == 3
        return replace(
            self,
            x=pad(self.x, more),
            real=pad(self.real, (0, count), value=False),
            cotangent=pad(self.cotangent, more) if tokens else self.cotangent,
        )

    def to(self, dtype: torch.dtype) -> PosedBatch:
        """The same values in another dtype."""
        return replace(self, x=self.x.to(dtype), cotangent=self.cotangent.to(dtype))


@dataclass(frozen=True)
class Subject:
    """A module without oracle, in one dtype on one device."""

    mechanism: Mechanism
    implementation: Implementation
    dtype: str
    device: str
    options: Mapping[str, Any]  # for the factory
    d_in: int = D_IN
    d_out: int = D_OUT
    heads: int = HEADS

    arithmetic: str = ""  # by which it is judged; its dtype, unless products are in TF32
    # What several checks ask for and one of them has found out.
    remembered: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def judged_as(self) -> str:
        """The name by which units and budgets know its arithmetic."""
        return self.arithmetic or self.dtype

    @property
    def tokens(self) -> bool:
        """Whether the output has a row for each token."""
        return self.mechanism.output == "tokens"

    def module(self, seed: int = 0) -> torch.nn.Module:
        """Build a fresh module in evaluation mode: dropout would make two runs of one differ.

        Its weights are moved away from where they start: a bias of zero would hide that it is lost.
        """
        factory = self.implementation.factory
        module = make(
            self.mechanism, factory, self.d_in, self.d_out, self.heads, self.options, seed
        )
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in trained(module).values():
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
        module = module.to(device=self.device, dtype=torch_dtype(self.dtype)).eval()
        if self.device == "cuda":
            for part in module.modules():
                if isinstance(part, torch.nn.RNNBase):
                    part.train()  # cuDNN has no backward pass in evaluation mode
        return module

    def twin(self, of: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
        """Build a fresh module, from another seed if one is given, with the weights of another."""
        module = self.module(seed)
        module.load_state_dict(of.state_dict(), strict=False)  # what is made lazily may be missing
        return module

    def double(self) -> Subject:
        """The same in float64."""
        return replace(self, dtype="f64", arithmetic="", remembered={})

    def declarations(self) -> tuple[str, ...]:
        """What the module or its factory says of it, in words of `DECLARABLE`."""
        if (found := self.remembered.get(ATTRIBUTE)) is None:
            factory = resolve(self.implementation.factory)
            found = tuple(dict.fromkeys(declared(factory) + declared(self.module())))
            self.remembered[ATTRIBUTE] = found
        words: tuple[str, ...] = found
        return words

    def declares(self, what: str) -> bool:
        """Whether the module says so of itself."""
        return what in self.declarations()

    def point(self, lengths: Lengths, seed: int = 0) -> PosedBatch:
        """Draw a batch of these lengths, rounded to the subject's dtype."""
        n = max(lengths)
        generator = torch.Generator().manual_seed(1000 * seed + n)
        real = torch.arange(n)[None, :] < torch.tensor(lengths)[:, None]  # [B, N]
        x = torch.randn(len(lengths), n, self.d_in, generator=generator)
        shape = (len(lengths), n, self.d_out) if self.tokens else (len(lengths), self.d_out)
        cotangent = torch.randn(shape, generator=generator)
        if self.tokens:
            cotangent = cotangent.masked_fill(~real[..., None], 0)
        x = x.masked_fill(~real[..., None], 0) * (STEEPER if seed == STEEP else 1)
        x, cotangent = (t.to(self.device, torch_dtype(self.dtype)) for t in (x, cotangent))
        where = f"N={n}, x times {STEEPER:g}" if seed == STEEP else f"N={n}"
        where = f"{where}, {self.dtype}"
        return PosedBatch(x, real.to(self.device), cotangent, where, (lengths, seed))

    def points(self) -> Iterator[PosedBatch]:
        """A point for each of the `SMALL` batches."""
        for lengths in SMALL:
            yield self.point(lengths)

    def steep(self) -> Iterator[PosedBatch]:
        """One of large numbers, where there are digits for it; of values alone.

        Of single tokens: where one is all that may be attended to, no score matters.
        """
        if self.dtype in ("f64", "f32"):
            yield self.point((1, 1, 1, 1, 1, 1, 0), STEEP)

    def answer(
        self,
        point: PosedBatch,
        doing: str,
        module: torch.nn.Module | None = None,
        x: torch.Tensor | None = None,
        training: bool = True,
    ) -> Computed:
        """What a module says at a point: values, gradients of x and of every weight.

        Parameters
        ----------
        doing : str
            What is out of the ordinary, for the message if the module raises: "NaN at padding".
        module : Module, optional
            A fresh one by default: what it remembers is a matter of its own.
        x : Tensor, optional
            In place of the point's.
        training : bool
            Whether gradients are asked for.

        Raises
        ------
        Refused
            If the module raises, or returns something else than asked for.
        """
        module = self.module() if module is None else module
        with told(doing, point):
            x = point.x if x is None else x
            return computed(module, x, point.real.clone(), point.cotangent, training)

    def values(
        self, point: PosedBatch, doing: str, module: torch.nn.Module | None = None
    ) -> np.ndarray:
        """Output alone, without gradients, as float64; zero where nothing is asked for."""
        module = self.module() if module is None else module
        with told(doing, point), torch.no_grad():
            # Each call gets memory of its own, in the layout of what is given.
            return at_tokens(module(kept_layout(point.x), kept_layout(point.real)), point)


def of_mechanism(
    mechanism: Mechanism, implementation: Implementation, dtype: str, device: str
) -> Subject:
    """The subject at the sizes at which everything is verified."""
    options = {**mechanism.options, **implementation.options}
    d_in = D_OUT if mechanism.keeps_width else D_IN
    return Subject(mechanism, implementation, dtype, device, options, d_in)


def declared(module: object) -> tuple[str, ...]:
    """What a module or its factory says of it in ``attnbench_declares``.

    Raises
    ------
    UsageError
        If it says what nobody knows.
    """
    words = tuple(getattr(module, ATTRIBUTE, ()))
    for word in words:
        if word not in DECLARABLE:
            expected = ", ".join(DECLARABLE)
            raise UsageError(f"attnbench_declares: given {word!r}; expected some of {expected}")
    return words


@contextmanager
def told(doing: str, point: PosedBatch) -> Iterator[None]:
    """Turn what a module raises into a `Refused` that says what it was asked.

    Not what it can't do at all (`Unsupported`), too little memory, or a user's mistake.
    """
    try:
        yield
    except (Refused, Void):
        raise
    except Exception as problem:
        status, _ = of_exception(problem, limited=False)
        if kind_of(problem) == USAGE or status != "crash":
            raise
        text = f"{doing} raised {type(problem).__name__}: {one_line(str(problem))}"
        raise Refused(f"{text} ({point.where})") from problem


def at_tokens(output: torch.Tensor, point: PosedBatch) -> np.ndarray:
    """An output as float64, zero at padding."""
    real = point.real.cpu().numpy() != 0
    found = numpy64(output)
    return np.where(real[..., None], found, 0) if found.ndim == 3 else found


def kept_layout(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into memory that is laid out as its own."""
    return tensor.new_empty(0).set_(
        tensor.untyped_storage().clone(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


def numbers(found: Computed, point: PosedBatch) -> dict[str, np.ndarray]:
    """Output and gradients by the names that findings use, without what stands at padding."""
    kept = point.real.cpu().numpy()
    output = found.output[kept] if found.output.ndim == 3 else found.output
    gradients = {n: g[kept] if n == "x" else g for n, g in found.gradients.items()}
    return {OUTPUT: output, **{f"gradient of {n}": g for n, g in gradients.items()}}


def of(name: str) -> str:
    """Of what a number that `numbers` names is the gradient; empty for values."""
    return "" if name == OUTPUT else name.removeprefix("gradient of ")
