"""The records that describe a mechanism and its implementations.

Nothing here imports torch: implementations and oracles are dotted strings
(``"package.module:attribute"``) that are resolved where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


class Unsupported(Exception):
    """An implementation cannot do what it was asked; the message says what and why."""


class BadOption(ValueError):
    """A configuration that no implementation of the mechanism can have (the user's mistake)."""


class BadSize(BadOption):
    """Such a configuration by its width and heads alone."""


def few_tokens(tokens: int, d_in: int, item_bytes: int, device: str) -> bool:
    """Whether so many are not worth weights of d_in rows being put together for them.

    On a CPU, up to a quarter as many as the weights have rows. Then it takes less time to multiply
    each by itself than to write all of them, and their gradients, once more; of half precision not,
    as oneDNN multiplies batches of that slowly.
    """
    return device == "cpu" and item_bytes >= 4 and 4 * tokens <= d_in


@dataclass(frozen=True)
class Size:
    """The sizes that a formula for operations, bytes or parameters depends on.

    Attributes
    ----------
    batch, length : int
        B and N.
    d_in, d_out : int
        Width of the input tokens and of the output.
    heads : int
        H; 1 where a mechanism has no heads.
    item_bytes : int
        Bytes of one number in the case's dtype.
    training : bool
        Forward and backward pass, or forward alone.
    options : mapping
        Options that differ from the record's own, for the formulas that read them: see
        `Mechanism.formula_options`.
    device : str
        Its type, for what is cut to fit a processor's cache or to fill a GPU.
    """

    batch: int
    length: int
    d_in: int
    d_out: int
    heads: int = 1
    item_bytes: int = 4
    training: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    device: str = "cpu"

    @property
    def few(self) -> bool:
        """Whether training multiplies by each weight by itself: see `reference_impls.merged`."""
        return few_tokens(self.batch * self.length, self.d_in, self.item_bytes, self.device)

    @property
    def pairs(self) -> int:
        """B H N N: pairs of tokens, of every head."""
        return self.batch * self.heads * self.length**2

    @property
    def features(self) -> int:
        """B N d_out: numbers of a tensor over tokens of the output's width."""
        return self.batch * self.length * self.d_out

    @property
    def inputs(self) -> int:
        """B N d_in: numbers of the input."""
        return self.batch * self.length * self.d_in


@dataclass(frozen=True)
class Implementation:
    """One way to compute a mechanism.

    Attributes
    ----------
    name : str
        Last part of the id, as in ``mtsa.algorithm1``.
    factory : str
        Dotted callable ``factory(d_in, d_out, **options) -> torch.nn.Module``.
    summary : str
        One line for ``attnbench list``.
    options : mapping
        Options that select this implementation (a backend, say), added to the mechanism's.
    devices : tuple of str
        Device types on which it can run.
    mask_optional : bool
        ``forward(x, None)`` is allowed and means that no token is padding.
    transient_bytes : callable or None
        Formula over a `Size` for the bytes that one eager pass of this implementation, with the
        default options, holds at its peak beyond input and weights: what a memory reading says.
        In float32 and float64 on the CPU the two agree within 15 % from 64 MiB on. None where
        nobody has derived it.
    operations : callable or None
        Formula in place of the mechanism's, of an implementation that does less than that says
        (it skips pairs that a mask forbids, say).
    long : int
        A length at which work is cut into more pieces than at those that all are verified at; 0 if
        nothing is cut.
    forced : mapping
        Name -> constants ``"module:NAME"`` with other values, under which it is verified as well:
        small work in many pieces, say, or a repair that would be rare.
    deterministic : bool
        Whether it promises the same bits in every repeat and in the replay of a CUDA graph, values
        and gradients: ``attnbench verify --determinism`` fails where it breaks that.
    fast32 : tuple of str
        Device types on which its float32 is a library's fast mathematics (products of three TF32
        products, approximate exponentials): it is judged as that, see `harness.verify.budget`.
    """

    name: str
    factory: str
    summary: str
    options: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu", "cuda")
    mask_optional: bool = False
    transient_bytes: Callable[[Size], float] | None = None
    operations: Callable[[Size], float] | None = None
    long: int = 0
    forced: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deterministic: bool = False
    fast32: tuple[str, ...] = ()

    def arithmetic(self, dtype: str, device: str) -> str:
        """What errors are judged by: the dtype, or ``fast32``."""
        return "fast32" if dtype == "f32" and device in self.fast32 else dtype


def of_package(
    folder: str, *others: Implementation, oracle: str = "naive:naive", **classes: tuple[Any, ...]
) -> dict[str, Any]:
    """What a `Mechanism` has in one package: oracle, implementations by classes, the first plain.

    Parameters
    ----------
    folder : str
        The package; the classes are in its ``modules``, or in a module named in front of a colon.
    *others : Implementation
        Behind them.
    oracle : str
        Module and function.
    **classes
        Name of the implementation -> class, summary, and perhaps a mapping of other fields.

    Examples
    --------
    >>> fields = of_package("p", plain=("A", "slow"), fast=("b:B", "quick", {}))
    >>> one, two = fields["implementations"]
    >>> one.factory, two.factory, two.summary, two.mask_optional
    ('p.modules:A', 'p.b:B', 'quick', True)
    >>> fields["folder"], fields["oracle"], fields["plain"]
    ('p', 'p.naive:naive', 'p.modules:A')
    """
    found = []
    for name, (own, summary, *more) in classes.items():
        factory = f"{folder}.{own if ':' in own else f'modules:{own}'}"
        fields = more[0] if more else {}
        found.append(Implementation(name, factory, summary, mask_optional=True, **fields))
    return {
        "implementations": (*found, *others),
        "folder": folder,
        "oracle": f"{folder}.{oracle}",
        "plain": found[0].factory,
    }


@dataclass(frozen=True)
class Drawn:
    """What a pass of a module drew.

    Attributes
    ----------
    of : callable or None
        ``(b, n)`` -> arrays by name for the n real tokens of sample b: the oracle's ``drawn``. None
        where nothing is drawn.
    said : callable
        ``()`` -> what the module itself says of its draws, by name: tensors [B] with gradients.
    """

    of: Callable[[int, int], dict[str, Any]] | None = None
    said: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True)
class Mechanism:
    """A context-fusion mechanism in one named configuration.

    Attributes
    ----------
    name : str
        First part of the id.
    summary, source : str
        One line, and the paper or program with its equation numbers.
    implementations : tuple of Implementation
        All of them share the names and shapes of their weights.
    folder : str
        Package whose files, with those of the packages of `reference_impls` that they import, are
        the code hash; empty for a foreign mechanism.
    oracle : str or None
        Dotted naive float64 function; see `harness.verify.compare.Question`.
    plain : str or None
        Dotted factory of the stable yardstick whose rounding error sets the error budget.
    options : mapping
        The configuration, passed to oracle and implementations alike.
    variants : mapping
        Name -> options that differ from `options`; the verifier goes through all of them.
    output : {"tokens", "sentence"}
        ``[B, N, d_out]`` or ``[B, d_out]``.
    tokens : mapping
        Of one that gives sentences: options that differ from `options` where its tokens are asked
        for, as its ``states`` [B, N, d_model] are for tagging. Empty: it has none to give.
    takes_heads : bool or None
        Whether ``heads`` is passed; None: to a factory that names it, which is not loaded yet.
    even_heads : bool
        Whether its default masks need an even number of heads.
    keeps_width : bool
        Whether d_out must equal d_in.
    score_weights : tuple of str
        Weights that, multiplied by s, multiply every score by s (for the stress test of scores).
    score_options : mapping
        Options that differ from `options` where scores are magnified: a bound on them, say.
    random : mapping
        Name -> options that differ from `options`, with which a module in training mode draws at
        random: the verifier compares it with what the oracle makes of the same draws.
    always_random : bool
        Whether it draws in evaluation mode too.
    recorder : str
        Dotted context manager ``(module) -> Drawn`` that notes what a pass draws.
    odds : str
        Dotted function of the oracle, ``(x, weights, drawn, **options) -> (said, coins)``: what the
        module must say of its draws, by name; and each kind of draw, by name, as the array of what
        happened and the probability of that.
    presets : str
        ``module:function`` that writes out options with ``preset``: returns those meant, and the
        width of the output that they need. Empty: there are no presets.
    default : str
        The implementation meant where only the mechanism is named; empty: the last one.
    parameters, operations, transient_bytes : callable or None
        Formulas over a `Size`: number of weights; floating-point operations of one pass; about how
        many bytes a good implementation holds at the peak of one pass beyond input and weights.
    formula_options : tuple of str
        Options that the formulas for parameters and operations read from `Size.options`. With any
        other option that differs from `options` they say nothing.
    goldens : mapping
        Golden folder -> dotted function ``(config, arrays) -> (options, weights, d_out)``, weights
        float64 by state_dict name, or with a fourth element: arrays that take the place of the
        file's (an ``x`` that carries what the program was given beside it, say).
    part_goldens : mapping
        Golden folder of what is no mechanism, a part of this one or a model around it -> dotted
        function ``(config, arrays, build, dtype) -> {array: Tensor}``. ``build(d_in, d_out, heads,
        options)`` makes this mechanism's module; what comes back is held against the file's arrays
        of these names.
    padding_matters : str
        How the amount of padding (never its content) changes real rows, where it does; empty
        otherwise. The oracle is then told the padded length N by the keyword ``padded``.
    """

    name: str
    summary: str
    source: str
    implementations: tuple[Implementation, ...]
    folder: str = ""
    oracle: str | None = None
    plain: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    output: Literal["tokens", "sentence"] = "tokens"
    tokens: Mapping[str, Any] = field(default_factory=dict)
    takes_heads: bool | None = False
    even_heads: bool = False
    keeps_width: bool = False
    score_weights: tuple[str, ...] = ()
    score_options: Mapping[str, Any] = field(default_factory=dict)
    random: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    always_random: bool = False
    recorder: str = ""
    odds: str = ""
    presets: str = ""
    default: str = ""
    parameters: Callable[[Size], int] | None = None
    operations: Callable[[Size], float] | None = None
    transient_bytes: Callable[[Size], float] | None = None
    formula_options: tuple[str, ...] = ()
    goldens: Mapping[str, str] = field(default_factory=dict)
    part_goldens: Mapping[str, str] = field(default_factory=dict)
    padding_matters: str = ""

    def implementation(self, name: str) -> Implementation:
        """Return the implementation of that name, or raise `BadOption` naming those there are."""
        for implementation in self.implementations:
            if implementation.name == name:
                return implementation
        known = ", ".join(i.name for i in self.implementations)
        raise BadOption(f"{self.name} has no implementation {name!r}; it has {known}")
