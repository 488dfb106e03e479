"""Problem x named Setting = Case, and the ids by which cases are written.

An id reads as a configuration, for example
``mtsa.algorithm1-B64-N64-D300x600-H8-f32-training-cpu+1-thread``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from reference_impls.mechanism import Size

DTYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}
ITEM_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}
PHASES = ("forward", "training")
CONTROL = "control"


@dataclass(frozen=True)
class Problem:
    """What is computed.

    Attributes
    ----------
    batch, length : int
        B and N; every sequence has its full length, unless a setting pads it.
    d_in, d_out : int
        Widths of input and output.
    heads : int
        H; 0 for a mechanism without heads.
    dtype : {"f64", "f32", "bf16", "f16"}
    phase : {"forward", "training"}
        Inference, or forward and backward with gradients of input and weights.
    device : {"cpu", "cuda"}
    """

    batch: int
    length: int
    d_in: int
    d_out: int
    heads: int
    dtype: str
    phase: str
    device: str

    def output_shape(self, output: str) -> tuple[int, ...]:
        """Of a mechanism whose output is ``tokens``, [B, N, d_out], or ``sentence``, [B, d_out]."""
        rows = (self.batch, self.length) if output == "tokens" else (self.batch,)
        return (*rows, self.d_out)


@dataclass(frozen=True)
class Setting:
    """How a problem is run, by name.

    Attributes
    ----------
    devices : tuple of str
        Devices where it means something; elsewhere the case's status is ``unsupported``.
    threads : int or None
        Intra-operation threads on the CPU; None: all that the process may use.
    compile_mode : str or None
        Mode of `torch.compile`, None for eager.
    padded : bool
        Whether the sequences of a batch have lengths from N/2 to N, and a mask that says so.
    """

    name: str
    summary: str
    devices: tuple[str, ...] = ("cpu", "cuda")
    threads: int | None = None
    compile_mode: str | None = None
    graphed: bool = False
    tf32: bool = False
    padded: bool = False


_SETTINGS = {
    s.name: s
    for s in (
        Setting(CONTROL, "nothing changed: the baseline under a second name (A/A control)"),
        Setting("compiled", "torch.compile, default mode", compile_mode="default"),
        Setting(
            "compiled-autotuned",
            "torch.compile, max-autotune",
            compile_mode="max-autotune-no-cudagraphs",
        ),
        Setting("graphed", "CUDA graph replay", devices=("cuda",), graphed=True),
        Setting("tf32", "float32 products in TF32", devices=("cuda",), tf32=True),
        Setting("padded", "sequences of lengths from N/2 to N, padded to N", padded=True),
        Setting("1-thread", "one CPU thread", devices=("cpu",), threads=1),
    )
}
_THREADS = re.compile(r"([1-9][0-9]{0,3})-threads?")


def setting(name: str) -> Setting:
    """Return the named setting; ``3-threads`` and the like are made on demand.

    Raises
    ------
    UsageError
        If there is no such setting.
    """
    if name in _SETTINGS:
        return _SETTINGS[name]
    if match := _THREADS.fullmatch(name):
        count = int(match[1])
        return Setting(name, f"{count} CPU threads", devices=("cpu",), threads=count)
    raise UsageError(
        f"unknown setting {name!r}; use {', '.join(_SETTINGS)} or K-threads, joined by '+', "
        "or 'eager' for none"
    )


def settings() -> tuple[Setting, ...]:
    """All settings that have a fixed name."""
    return tuple(_SETTINGS.values())


@dataclass(frozen=True)
class Case:
    """One measurement: an implementation, its extra options, a problem and its settings."""

    mechanism: str
    implementation: str
    problem: Problem
    settings: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """``mechanism.implementation`` with its options: what is compared."""
        options = ",".join(f"{k}={v}" for k, v in self.options)
        return f"{self.mechanism}.{self.implementation}" + (f"[{options}]" if options else "")

    @property
    def id(self) -> str:
        """The id that `parse` reads back."""
        p = self.problem
        width = f"D{p.d_in}" if p.d_in == p.d_out else f"D{p.d_in}x{p.d_out}"
        parts = [self.name, f"B{p.batch}", f"N{p.length}", width]
        if p.heads:
            parts.append(f"H{p.heads}")
        parts += [p.dtype, p.phase, p.device]
        return "-".join(parts) + "".join(f"+{s}" for s in self.settings)

    @property
    def own_settings(self) -> tuple[str, ...]:
        """Its settings without the mark of the A/A control."""
        return tuple(s for s in self.settings if s != CONTROL)

    @property
    def is_control(self) -> bool:
        """Whether this is the A/A control of a baseline case."""
        return CONTROL in self.settings

    def control(self) -> Case:
        """The same case under its second name."""
        return replace(self, settings=(*self.settings, CONTROL))

    def run_settings(self) -> Setting:
        """All its settings as one `Setting`.

        Raises
        ------
        UsageError
            If two of them contradict each other.
        """
        merged = Setting("+".join(self.settings) or "eager", "")
        for one in map(setting, self.settings):
            for field in ("threads", "compile_mode"):
                if None not in (getattr(one, field), getattr(merged, field)):
                    raise UsageError(f"{self.id}: two settings name {field}; give one")
            either = ("threads", "compile_mode", "graphed", "tf32", "padded")
            merged = replace(
                merged,
                devices=tuple(d for d in merged.devices if d in one.devices),
                **{name: getattr(merged, name) or getattr(one, name) for name in either},
            )
        return merged


def literal(text: str) -> Any:
    """Read the value of an option ``name=value``: a number, true, false, none, or a text.

    A list of numbers and texts is written with ``;`` behind or between its elements: ``1;n/16``,
    ``n/1;``, ``forward;none`` (the mask of that name).
    """
    if ";" in text:
        return [_number(part) for part in text.removesuffix(";").split(";")]
    words = {"true": True, "false": False, "none": None}
    return words[text.lower()] if text.lower() in words else _number(text)


def _number(text: str) -> int | float | str:
    """The number that a text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def split_name(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """``mtsa.plain[a=1,b=2]`` -> ``mtsa.plain`` and its options, as they stand in `Case.options`.

    Raises
    ------
    UsageError
        If the brackets are not closed at the end, or hold something else.
    """
    name, bracket, rest = text.partition("[")
    if not bracket:
        return text, ()
    if not rest.endswith("]"):
        raise UsageError(f"given {text!r}; expected e.g. mtsa.plain[scale_t=identity]")
    return name, parse_options(part for part in rest[:-1].split(",") if part)


def parse_options(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Read ``name=value`` texts of ``--option``.

    Raises
    ------
    UsageError
        If one has another form, or a character that can't stand in a case id; for a name twice.
    """
    options = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"option: given {text!r}; expected name=value")
        if any(c in text for c in ",[]"):
            raise UsageError(f"option: given {text!r}; ',', '[' and ']' can't stand in an id")
        options.append((name, value))
    return each_once(options)


def each_once(options: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The options themselves.

    Raises
    ------
    UsageError
        If a name stands there twice.
    """
    counts = Counter(name for name, _ in options)
    for name in (name for name, count in counts.items() if count > 1):
        raise UsageError(f"option: given {name} twice; expected each option once")
    return tuple(options)


_ID = re.compile(
    r"(?P<mechanism>[^.\[\]]+)\.(?P<implementation>[^.\[\]+-]+)(?:\[(?P<options>[^\]]*)\])?"
    r"-B(?P<batch>\d+)-N(?P<length>\d+)-D(?P<d_in>\d+)(?:x(?P<d_out>\d+))?(?:-H(?P<heads>\d+))?"
    r"-(?P<dtype>f64|f32|bf16|f16)-(?P<phase>forward|training)-(?P<device>[a-z]+)"
    r"(?P<settings>(?:\+[\w-]+)*)"
)


def parse(text: str) -> Case:
    """Read a case id.

    Raises
    ------
    UsageError
        If the text is not one.
    """
    match = _ID.fullmatch(text)
    if match is None:
        raise UsageError(
            f"not a case id: {text!r}; expected e.g. "
            "mtsa.algorithm1-B64-N64-D300x600-H8-f32-training-cpu+1-thread"
        )
    g = match.groupdict()
    names = tuple(s for s in g["settings"].split("+") if s)
    for name in names:
        setting(name)
    options = tuple(tuple(o.split("=", 1)) for o in (g["options"] or "").split(",") if o)
    sizes = {n: int(g[n] or 0) for n in ("batch", "length", "d_in", "d_out", "heads")}
    sizes["d_out"] = sizes["d_out"] or sizes["d_in"]
    problem = Problem(**sizes, dtype=g["dtype"], phase=g["phase"], device=g["device"])
    return Case(g["mechanism"], g["implementation"], problem, names, options)


def size_of(case: Case) -> Size:
    """The sizes of a case, for the formulas of its mechanism's record."""
    p = case.problem
    return Size(
        p.batch,
        p.length,
        p.d_in,
        p.d_out,
        p.heads or 1,
        ITEM_BYTES[p.dtype],
        p.phase == "training",
        {name: literal(value) for name, value in case.options},
        p.device,
    )


def problem_of(case: Case) -> tuple[Any, ...]:
    """What a case and its baseline share: sizes (but the output's), dtype, pass, settings."""
    p = case.problem
    return (p.batch, p.length, p.d_in, p.dtype, p.phase, p.device, case.own_settings)


def unique(cases: Iterable[Case]) -> list[Case]:
    """Drop repeated cases, keeping the first of each."""
    return list(dict.fromkeys(cases))
