"""What every module does alike: checks of options and inputs, initial weights, activations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from reference_impls.mechanism import BadOption, BadSize, Unsupported

L = TypeVar("L", bound=nn.Module)
RAISES = """    Raises
    ------
    BadOption
        For a configuration that does not exist.
"""
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "selu": torch.selu,
}
_IN_PLACE: Mapping[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = {
    torch.relu: torch.relu_,
    nn.functional.elu: partial(nn.functional.elu, inplace=True),
    torch.selu: torch.selu_,
}


def in_place(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same activation written over its argument, which nobody else may need."""
    return _IN_PLACE[activation]


def activation_by_name(name: str) -> Callable[[Tensor], Tensor]:
    """Return relu, elu (alpha 1) or selu.

    Raises
    ------
    BadOption
        For any other name.
    """
    return ACTIVATIONS[one_of("activation", name, ACTIVATIONS)]


def one_of(option: str, value: Any, known: Iterable[Any]) -> Any:
    """Return a value if it is one of those known, else raise `BadOption`."""
    names = list(known)
    if value not in names:
        raise BadOption(f"{option}={value!r}; expected {' or '.join(map(repr, names))}")
    return value


def refuse_rows(rows: Tensor | None) -> None:
    """Raise `Unsupported` where some query positions are asked for: all are computed together."""
    if rows is not None:
        raise Unsupported(
            "rows names some query positions; expected None (all), as only plain computes some "
            "alone: take plain, or pick them from the output"
        )


def positive_int(option: str, value: Any) -> int:
    """Return an integer of at least 1, else raise `BadOption`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadOption(f"{option}={value!r}; expected an integer of at least 1")
    return value


def true_or_false(option: str, value: Any) -> bool:
    """Return a bool, else raise `BadOption`."""
    if not isinstance(value, bool):
        raise BadOption(f"{option}={value!r}; expected True or False")
    return value


def refuse_unknown(mechanism: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadOption` if options are given that a mechanism does not have."""
    known = list(known)
    if unknown := [repr(option) for option in given if option not in known]:
        has = ", ".join(known) or "none"
        raise BadOption(f"{mechanism} has no option {', '.join(unknown)}; it has {has}")


def options_of(layer: type) -> tuple[str, ...]:
    """Names of the keyword-only parameters of a layer's constructor, in their order."""
    parameters = inspect.signature(layer).parameters.values()
    return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


def layer_of(mechanism: str) -> Callable[[type[L]], type[L]]:
    """Say whose layer a class is: options that its constructor does not name are refused.

    It ends the docstring as all of them would: with `BadOption`, raised for a configuration that
    does not exist.
    """

    def declared(layer: type[L]) -> type[L]:
        init, known = layer.__init__, options_of(layer)

        @wraps(init)
        def checked(self: L, d_in: int, d_out: int, **options: Any) -> None:
            refuse_unknown(mechanism, options, known)
            init(self, d_in, d_out, **options)

        layer.__init__ = checked  # type: ignore[method-assign, assignment]
        layer.__doc__ = f"{layer.__doc__}\n{RAISES}"
        return layer

    return declared


def width_per_part(d_out: int, parts: int, what: str) -> int:
    """Return d_out / parts, or raise `BadSize` if it is not an integer."""
    if d_out % parts:
        raise BadSize(f"d_out={d_out} is not divisible by {parts} {what}; give a multiple")
    return d_out // parts


def check_input(x: Tensor, mask: Tensor | None, d_in: int) -> None:
    """Check a batch of sequences.

    Parameters
    ----------
    x : Tensor, floating, shape [B, N, d_in], N >= 1
    mask : Tensor of bool, shape [B, N], on the device of x, or None

    Raises
    ------
    ValueError
        One line: what was given, what was expected, what to do.
    """
    if not x.is_floating_point():
        raise ValueError(f"x has dtype {x.dtype}; expected a floating dtype, convert it")
    if x.ndim != 3 or x.shape[2] != d_in:
        raise ValueError(
            f"x has shape {list(x.shape)}; expected [B, N, {d_in}], batch first; reshape it"
        )
    if x.shape[1] < 1:
        raise ValueError(
            f"x has shape {list(x.shape)}, no positions; expected N >= 1, drop empty batches"
        )
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}; expected torch.bool, true for real tokens: use mask != 0"
        )
    if mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask has shape {list(mask.shape)}; expected {list(x.shape[:2])}, one per token of x"
        )
    if mask.device != x.device:
        raise ValueError(f"mask is on {mask.device}; expected {x.device}, where x is; move it")


class PicksRows(nn.Module):
    """Base in front of a plain layer's that computes all positions: ``rows`` picks some."""

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N."""
        out: Tensor = super().forward(x, mask)
        return out if rows is None else out[:, rows]


class OneRow(nn.Module):
    """Base in front of a plain layer's that makes sentences: ``rows`` is ignored."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None, **more: Any
    ) -> Tensor:
        """[B, N, d_in] -> [B, d_out], one output per sequence."""
        out: Tensor = super().forward(x, mask, **more)
        return out


def lengths_of(mask: Tensor) -> Tensor:
    """Real tokens of each sample, [B] on the CPU, where padding stands behind them.

    Raises
    ------
    ValueError
        If it does not.
    """
    real = mask.cpu()
    lengths = real.sum(1)
    if not torch.equal(real, torch.arange(mask.shape[1]) < lengths[:, None]):
        raise ValueError(
            "mask has a real token behind padding; expected padding on the right only, "
            "move it there"
        )
    return lengths


def zero_at_padding(values: Tensor, mask: Tensor | None) -> Tensor:
    """Set ``values`` [B, N, ...] to zero where ``mask`` [B, N] is false, NaN and infinity too.

    The gradient that flows back there is zero, whatever it was.
    """
    if mask is None:
        return values
    return values.masked_fill(~mask.reshape(mask.shape + (1,) * (values.ndim - 2)), 0)


def masked_softmax(scores: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """Softmax over the allowed entries, their maximum subtracted; 0 where nothing is allowed.

    Parameters
    ----------
    scores : Tensor
        May hold anything finite at forbidden entries; nothing flows back there.
    allowed : Tensor of bool, broadcastable to scores
    dim : int

    Returns
    -------
    Tensor, shape of scores
    """
    scores = scores.masked_fill(~allowed, -math.inf)
    highest = scores.detach().amax(dim, keepdim=True)
    highest = highest.masked_fill(highest == -math.inf, 0)  # -inf - -inf would be NaN
    weights = (scores - highest).exp()
    total = weights.sum(dim, keepdim=True)
    # A sum that holds its own maximum is at least 1: zero means that nothing is allowed.
    return weights / total.masked_fill(total == 0, 1)


def glorot(*shape: int, taps: int = 1) -> nn.Parameter:
    """Return a Glorot-uniform weight ``[..., fan_in, fan_out]``.

    Leading axes (heads) hold independent matrices and do not count, except for the `taps` of a
    convolution, which multiply both fans.
    """
    bound = math.sqrt(6 / (taps * (shape[-2] + shape[-1])))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def zero_bias(*shape: int) -> nn.Parameter:
    """Return a bias of zeros."""
    return nn.Parameter(torch.zeros(shape))


def weight_of(module: nn.Module, name: str) -> Tensor:
    """What stands in the place of a module's parameter, the parameter itself as a rule.

    Not by `torch.nn.Module.get_parameter`: `torch.func.functional_call` puts plain tensors there.
    As an attribute alone, where it may be a property, it would take torch six times as long.
    """
    found = module._parameters.get(name)
    found = getattr(module, name) if found is None else found
    assert isinstance(found, Tensor)
    return found


def core_dtype(dtype: torch.dtype) -> torch.dtype:
    """Dtype for sums of exponentials: float32 in place of half precision.

    float16 has no room for the exponentials. In bfloat16 the gradients of a numerator and its
    denominator, which nearly cancel, lose 8 % where a softmax loses 0.4 %.
    """
    return torch.promote_types(dtype, torch.float32)


def in_dtype(t: Tensor, dtype: torch.dtype) -> Tensor:
    """``t.to(dtype)``, which takes ten times as long where there is nothing to do."""
    return t if t.dtype == dtype else t.to(dtype)


def least_denominator(dtype: torch.dtype, length: int) -> float:
    """Below this a denominator may have lost more than 2e-6 of itself to underflow.

    What is lost of a term p*e of factors up to 1 is below 4e-38, see `mtsa.optimized`.
    """
    return 1e-280 if dtype == torch.float64 else max(1e-30, 2e-32 * length)


def host_can_decide(x: Tensor) -> bool:
    """Whether Python may look at values: not while compiling, nor in CUDA graph capture."""
    if torch.compiler.is_compiling():
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())
