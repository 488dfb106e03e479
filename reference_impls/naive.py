"""What the float64 oracles share: what they take and return, their gradients, activations.

An oracle is ``naive(x, weights, rows=None, grad_out=None, **options)``, for one sequence:

x : ndarray [n, D] of float64
    Real tokens only.
weights : mapping
    By the names of the module's weights.
rows : ints [R] or None
    Positions to return; None is all n. Where the amount of padding matters padded ones may be among
    them. Not read where the output is a sentence.
grad_out : ndarray, shape of the output, or None
    Cotangent of the output.

It returns the output, [R, d_out] or [d_out], and with `grad_out` the gradients of
``sum(out * grad_out)`` with respect to x and to each weight, otherwise two times None.

Only its forward pass is written, as the paper has it: an `Oracle` gives it `Traced` arrays, which
note what each number was computed of, and goes the way back by the derivatives in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from itertools import count
from typing import Any

import numpy as np

Array = np.ndarray
"""Or a `Traced` one."""
Weights = Mapping[str, Array]
Rows = Sequence[int] | Array | None
Result = tuple[Array, Array | None, dict[str, Array] | None]
SELU = (1.0507009873554805, 1.6732632423543772)


class Oracle:
    """A forward pass ``forward(x, weights, rows, **options)`` as an oracle.

    It returns the output, or that and a number which is added to what gradients are taken of.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        update_wrapper(self, forward)
        self.forward = forward

    def __call__(
        self,
        x: Array,
        weights: Weights,
        rows: Rows = None,
        grad_out: Array | None = None,
        **options: Any,
    ) -> Result:
        """As the module says."""
        rows = np.arange(len(x)) if rows is None else np.asarray(rows, dtype=int)
        if grad_out is None:
            found = self.forward(x, weights, rows, **options)
            return found[0] if isinstance(found, tuple) else found, None, None
        leaf, leaves = Traced(x), {name: Traced(w) for name, w in weights.items()}
        found = self.forward(leaf, leaves, rows, **options)
        out, *others = found if isinstance(found, tuple) else (found,)
        total = sum(others, start=(out * grad_out).sum())
        if isinstance(total, Traced):
            send_back(total, np.ones(()))
        return value_of(out), leaf.total, {name: one.total for name, one in leaves.items()}


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that numpy computes with, its cotangent, and how that goes on.

    Parameters
    ----------
    value : ndarray
    sources : sequence of Traced
        What it was computed of.
    send : callable, optional
        Given its cotangent, adds those of the sources to them.
    """

    _numbers = count()

    def __init__(
        self,
        value: Array,
        sources: Sequence[Traced] = (),
        send: Callable[[Array], None] | None = None,
    ) -> None:
        self.value, self.sources, self.send = value, sources, send
        self.number = next(self._numbers)
        self._total: Array | None = None
        self.shape, self.ndim = value.shape, value.ndim

    @property
    def total(self) -> Array:
        """The cotangent that has come together."""
        if self._total is None:
            self._total = np.zeros(self.shape)
        return self._total

    def add(self, g: Array) -> None:
        """Add to the cotangent, the sum of g over the axes along which this was broadcast."""
        if g.shape != self.shape:
            g = g.sum(axis=tuple(range(g.ndim - self.ndim)))
            g = g.sum(axis=tuple(a for a in range(self.ndim) if self.shape[a] == 1), keepdims=True)
        total = self.total
        total += g

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        values = [value_of(one) for one in inputs]
        out = getattr(ufunc, method)(*values, **options)
        if out.dtype == bool:
            return out
        slopes: list[Any] = [*zip(inputs, SLOPES[ufunc], strict=True)]
        slopes = [(one, slope) for one, slope in slopes if is_traced(one)]

        def send(g: Array) -> None:
            for one, slope in slopes:
                one.add(slope(g, out, *values))

        return Traced(out, [one for one, _ in slopes], send)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        known: dict[Any, Any] = {np.concatenate: _concatenate, np.where: _where}
        return known[function](*inputs, **options)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, at: Any) -> Traced:
        places = at if isinstance(at, tuple) else (at,)
        repeated = any(isinstance(place, np.ndarray) for place in places)

        def send(g: Array) -> None:
            if repeated:
                np.add.at(self.total, at, g)
            else:
                self.total[at] += g

        return Traced(self.value[at], [self], send)

    @property
    def T(self) -> Traced:
        """Transposed."""
        return Traced(self.value.T, [self], lambda g: self.add(g.T))

    def reshape(self, *shape: int) -> Traced:
        """In another shape."""
        value = self.value.reshape(*shape)
        return Traced(value, [self], lambda g: self.add(g.reshape(self.shape)))

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Traced:
        """The sum over an axis, or over all."""
        value = self.value.sum(axis=axis, keepdims=True)

        def send(g: Array) -> None:
            self.add(np.broadcast_to(g.reshape(value.shape), self.shape))

        return Traced(np.asarray(value if keepdims else value.squeeze(axis)), [self], send)

    def mean(self, axis: int, keepdims: bool = False) -> Traced:
        """The mean over an axis."""
        found: Traced = self.sum(axis, keepdims) / self.shape[axis]
        return found

    def max(self, axis: int) -> Traced:
        """The maximum over an axis; what shares it shares its gradient."""
        value = self.value.max(axis=axis)
        ties = self.value == np.expand_dims(value, axis)
        share = ties / ties.sum(axis=axis, keepdims=True)
        return Traced(value, [self], lambda g: self.add(share * np.expand_dims(g, axis)))

    def argmax(self, axis: int) -> Array:
        """Where the first maximum is."""
        return self.value.argmax(axis=axis)


def is_traced(a: Any) -> bool:
    """Whether gradients may be wanted of it."""
    return isinstance(a, Traced)


def value_of(a: Any) -> Any:
    """The array itself: nothing goes back through it."""
    return a.value if isinstance(a, Traced) else a


def send_back(out: Traced, g: Array) -> None:
    """Add to all that `out` was computed of what its cotangent g gives."""
    out.add(g)
    found, waiting = {out.number: out}, [out]
    while waiting:
        for source in waiting.pop().sources:
            if source.number not in found:
                found[source.number] = source
                waiting.append(source)
    for number in sorted(found, reverse=True):  # nothing was computed of what came later
        one = found.pop(number)
        if one.send is not None:
            one.send(one.total)
            one.send, one.sources, one._total = None, (), None  # it is of no more use


def again(compute: Callable[..., Any], *given: Any) -> Any:
    """``compute(*given)``, computed once more on the way back: meanwhile nothing of it is held."""
    traced = [one for one in given if is_traced(one)]
    value = compute(*map(value_of, given))
    if not traced:
        return value

    def send(g: Array) -> None:
        inside = [Traced(one.value) if is_traced(one) else one for one in given]
        send_back(compute(*inside), g)
        for one, found in zip(traced, filter(is_traced, inside), strict=True):
            one.add(found.total)

    return Traced(value, traced, send)


def _matmul(g: Array, a: Array, b: Array, of_a: bool) -> Array:
    """One of the gradients of a b; vectors are rows on the left, columns on the right."""
    left, right = np.atleast_2d(a), b if b.ndim == 2 else b[:, None]
    g = g.reshape(len(left), right.shape[1])
    return (g @ right.T).reshape(a.shape) if of_a else (left.T @ g).reshape(b.shape)


SLOPES: Mapping[np.ufunc, tuple[Callable[..., Array], ...]] = {
    np.add: (lambda g, out, a, b: g, lambda g, out, a, b: g),
    np.subtract: (lambda g, out, a, b: g, lambda g, out, a, b: -g),
    np.multiply: (lambda g, out, a, b: g * b, lambda g, out, a, b: g * a),
    np.divide: (lambda g, out, a, b: g / b, lambda g, out, a, b: -g * out / b),
    np.negative: (lambda g, out, a: -g,),
    np.sqrt: (lambda g, out, a: g / (2 * out),),
    np.tanh: (lambda g, out, a: g * (1 - out**2),),
    np.maximum: (lambda g, out, a, b: g * (a > b), lambda g, out, a, b: g * (b > a)),
    np.matmul: (
        lambda g, out, a, b: _matmul(g, a, b, of_a=True),
        lambda g, out, a, b: _matmul(g, a, b, of_a=False),
    ),
}
"""Of each argument, what the result's cotangent g sends it; ``out`` is the result."""


def _concatenate(parts: Sequence[Any], axis: int = 0) -> Traced:
    values = [value_of(part) for part in parts]
    edges = np.cumsum([value.shape[axis] for value in values])[:-1]

    def send(g: Array) -> None:
        for part, own in zip(parts, np.split(g, edges, axis=axis), strict=True):
            if is_traced(part):
                part.add(own)

    sources = [part for part in parts if is_traced(part)]
    return Traced(np.concatenate(values, axis=axis), sources, send)


def _where(chosen: Array, a: Any, b: Any) -> Traced:
    def send(g: Array) -> None:
        for one, here in ((a, chosen), (b, ~chosen)):
            if is_traced(one):
                one.add(g * here)

    value = np.where(chosen, value_of(a), value_of(b))
    return Traced(value, [one for one in (a, b) if is_traced(one)], send)


def _pointwise(z: Array, value: Array, slope: Array) -> Array:
    """A function of each number of z, and its derivative there."""
    if not isinstance(z, Traced):
        return value
    return Traced(value, [z], lambda g: z.add(g * slope))


def activate(given: Array, name: str) -> Array:
    """Return an activation: tanh, relu, elu or selu."""
    z = value_of(given)
    if name == "tanh":
        return np.tanh(given)
    if name == "relu":
        return _pointwise(given, np.maximum(z, 0.0), z > 0)
    outer, alpha = {"elu": (1.0, 1.0), "selu": SELU}[name]
    low = np.minimum(z, 0.0)
    value = outer * np.where(z > 0, z, alpha * np.expm1(low))
    return _pointwise(given, value, outer * np.where(z > 0, 1.0, alpha * np.exp(low)))


def log_sigmoid(given: Array) -> Array:
    """Return the logarithm of the logistic function, for numbers of any size."""
    z = value_of(given)
    return _pointwise(given, -np.logaddexp(0.0, -z), np.exp(-np.logaddexp(0.0, z)))


def sigmoid(given: Array) -> Array:
    """Return the logistic function, for numbers of any size."""
    z = value_of(given)
    value = np.exp(-np.logaddexp(0.0, -z))
    return _pointwise(given, value, value * np.exp(-np.logaddexp(0.0, z)))


def softmax(given: Array, axis: int) -> Array:
    """Return exp over its sum along an axis; where all of that is -inf, 0."""
    z = value_of(given)
    top = z.max(axis=axis, keepdims=True)
    e = np.exp(z - np.where(np.isneginf(top), 0.0, top))
    p = e / np.maximum(e.sum(axis=axis, keepdims=True), 1.0)  # no sum is below 1 but the empty one
    if not isinstance(given, Traced):
        return p
    return Traced(p, [given], lambda g: given.add(p * (g - (p * g).sum(axis=axis, keepdims=True))))


def layer_norm(z: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    """Return z [R, d] less its mean, over its biased deviation, times gain, plus bias; by rows."""
    apart = z - z.mean(axis=1, keepdims=True)
    deviation = np.sqrt((apart * apart).mean(axis=1, keepdims=True) + epsilon)
    return apart / deviation * gain + bias


def stack(rows: Sequence[Array], width: int) -> Array:
    """Return the rows [width] below one another, [R, width]; R may be 0."""
    return np.concatenate([np.zeros((0, width)), *(row.reshape(1, width) for row in rows)])


CHUNK = 32


def states(step: Callable[..., Array], read: Array, state: Array, *weights: Array) -> Array:
    """Return [n, w], row t of it ``step(read[t], row t - 1, *weights)``, the first after `state`.

    On the way back they are computed again, `CHUNK` at a time.
    """

    def some(read: Array, state: Array, *weights: Array) -> Array:
        found = []
        for one in read:
            state = step(one, state, *weights)
            found.append(state)
        return stack(found, state.shape[0])

    found = []
    for start in range(0, len(read), CHUNK):
        found.append(again(some, read[start : start + CHUNK], state, *weights))
        state = found[-1][-1]
    return np.concatenate(found)


def with_prefix(weights: Weights, prefix: str) -> dict[str, Array]:
    """Return the weights whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def directions(direction: str) -> dict[str, str]:
    """Return the direction of each block, by the prefix of its weights."""
    return {"fw_": "forward", "bw_": "backward"} if direction == "both" else {"": direction}


def side_by_side(
    weights: Weights, kinds: Mapping[str, Any], block: Callable[[dict[str, Array], Any], Array]
) -> Array:
    """Return the features of blocks side by side; each is told its weights and its kind.

    `kinds` tells the blocks apart, by the prefix of their weights.
    """
    parts = [block(with_prefix(weights, prefix), kind) for prefix, kind in kinds.items()]
    return np.concatenate(parts, axis=1)
