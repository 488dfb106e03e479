"""The models of the paper's experiments, as options (Table 1, Table 6, "mirrored summation").

What the paper states is in `Preset.options` as it states it; what it leaves open and we chose is
named in `Preset.ours`. The appendix (learning rates, dropout) is not in the text we have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reference_impls.mechanism import BadOption
from reference_impls.msmsa.scales import CANDIDATES

TAGGING = (1, 3, 5, 7, 9)
"""Candidate scales of the sequence labelling tasks (Table 1)."""
DEFAULTS: Mapping[str, Any] = {
    "heads": None,
    "layers": 2,
    "scales": None,
    "candidates": CANDIDATES,
    "alpha": 0.5,
    "readout": "concat",
    "cls": True,
    "head_dim": None,
}
"""Options that presets may set, with the defaults of the modules."""


@dataclass(frozen=True)
class Preset:
    """One model of the paper.

    Attributes
    ----------
    model : {"multi_scale_transformer", "transformer"}
    d_model : int
    options : mapping
        Those that differ from `DEFAULTS`.
    source : str
    ours : str
        What the paper does not state.
    """

    model: Literal["multi_scale_transformer", "transformer"]
    d_model: int
    options: Mapping[str, Any]
    source: str
    ours: str

    @property
    def d_out(self) -> int:
        """Width of the sentence vector."""
        readout = self.options.get("readout", DEFAULTS["readout"])
        return 2 * self.d_model if readout == "concat" else self.d_model


_MS: Literal["multi_scale_transformer"] = "multi_scale_transformer"
_TRANS: Literal["transformer"] = "transformer"
_300 = {"heads": 10, "head_dim": 30}
_SNLI = {"heads": 5, "head_dim": 64, "layers": 3}
_MIRRORED = {"heads": 10, "head_dim": 5}
_MIRRORED_OURS = "width 50, that of the input, and so heads of 5; [CLS ; max] as sentence vector"
_CLASSIFICATION = Preset(
    _MS,
    300,
    {**_300, "layers": 3, "alpha": 0.5, "candidates": CANDIDATES},
    "Table 1",
    "three layers, those of the example below eq. 12",
)
_TAGGING = Preset(
    _MS,
    300,
    {**_300, "layers": 3, "alpha": 1.0, "candidates": TAGGING, "readout": "max", "cls": False},
    "Table 1",
    "three layers; no [CLS]; tags are read from `states`, the sentence vector is there unasked",
)
_CLASSIFICATION_PEER = Preset(
    _TRANS,
    300,
    {**_300, "layers": 3},
    "Tables 2, 3",
    "layers, heads and readout: those of the Multi-Scale Transformer",
)


def _mirrored(layers: int, scales: list[Any]) -> Preset:
    return Preset(
        _MS,
        50,
        {**_MIRRORED, "layers": layers, "scales": [scales] * layers},
        "mirrored summation, figure 2",
        _MIRRORED_OURS,
    )


def _snli(source: str, **options: Any) -> Preset:
    return Preset(
        _MS,
        600,
        {**_SNLI, **options},
        source,
        "heads of 64 as in Table 1 although 5 of them do not make 600: W^o is 320 x 600",
    )


PRESETS: Mapping[str, Preset] = {
    "sst": _CLASSIFICATION,
    "mtl16": _CLASSIFICATION,
    "snli": _snli("Table 1; heads and layers: Table 6 B, which has Table 5's accuracy", alpha=0.5),
    "ptb_pos": _TAGGING,
    "conll2003": _TAGGING,
    "conll2012": _TAGGING,
    "mirrored_hier_s": _mirrored(2, [3] * 10),
    "mirrored_deephier_s": _mirrored(6, [3] * 10),
    "mirrored_flex": _mirrored(2, [s for s in (3, "n/16", "n/8", "n/4", "n/2") for _ in range(2)]),
    "table6_a": _snli("Table 6 A", alpha=1.0),
    "table6_b": _snli("Table 6 B", alpha=0.5),
    "table6_c": _snli("Table 6 C", alpha=0.0),
    "table6_d": _snli("Table 6 D", alpha=-0.5),
    "table6_e": _snli("Table 6 E", alpha=-1.0),
    "table6_f": _snli("Table 6 F", scales=[[3] * 5] * 3),
    "table6_g": _snli("Table 6 G", scales=[["n/16"] * 5] * 3),
    "table6_h": _snli("Table 6 H", scales=[["n/8"] * 5] * 3),
    "table6_i": _snli("Table 6 I", scales=[["n/4"] * 5] * 3),
    "sst_transformer": _CLASSIFICATION_PEER,
    "mtl16_transformer": _CLASSIFICATION_PEER,
    "snli_transformer": Preset(
        _TRANS,
        600,
        _SNLI,
        "Table 5: three layers, heavy dropout and weight decay",
        "heads: those of the Multi-Scale Transformer",
    ),
    "mirrored_transformer": Preset(
        _TRANS,
        50,
        {**_MIRRORED, "layers": 2},
        "mirrored summation, figure 2",
        f"two layers of 10 heads, those of its rivals; {_MIRRORED_OURS}",
    ),
}


def settle(
    name: str, model: str, given: Mapping[str, Any], d_out: int | None = None
) -> dict[str, Any]:
    """Put a preset's options in the place of defaults.

    Parameters
    ----------
    name : str
    model : str
        Whose options they shall be.
    given : mapping
        Options as they were given; one that has its default counts as not given.
    d_out : int, optional
        Width of the output, if it shall be checked too.

    Returns
    -------
    dict
        A value for every option in `given`.

    Raises
    ------
    BadOption
        If there is no such preset for the model, or an option says something else than the preset.
    """
    names = [key for key, preset in PRESETS.items() if preset.model == model]
    if name not in names:
        raise BadOption(f"preset={name!r}; expected {', '.join(names)}")
    preset = PRESETS[name]
    settled = {}
    for option, value in given.items():
        wanted = preset.options.get(option, DEFAULTS[option])
        if _plain(value) not in (_plain(DEFAULTS[option]), _plain(wanted)):
            raise BadOption(
                f"{option}={value!r}, but preset {name} has {wanted!r}; leave one of them out"
            )
        settled[option] = wanted
    if d_out is not None and d_out != preset.d_out:
        raise BadOption(f"d_out={d_out}, but preset {name} has {preset.d_out}; give that")
    return settled


def written_out(options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Options for the oracle, a preset's own in its place; and the width that it needs.

    Not the width of a head, which the oracle reads off the weights.

    Raises
    ------
    BadOption
        If there is no such preset.
    """
    meant = dict(options)
    name = meant.pop("preset")
    if name not in PRESETS:
        raise BadOption(f"preset={name!r}; expected {', '.join(PRESETS)}")
    meant |= PRESETS[name].options
    meant.pop("head_dim", None)
    return meant, PRESETS[name].d_out


def _plain(value: Any) -> Any:
    """Lists and tuples are the same to an option."""
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
