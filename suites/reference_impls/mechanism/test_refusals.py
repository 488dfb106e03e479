"""Bad inputs and options are refused in one line that says what to do."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import Tensor

from harness.build import make
from reference_impls.mechanism import BadOption
from suites.support.batches import D_IN, D_OUT, FAST, HEADS, MECHANISMS, PLAIN, batch, module_of

ALL = [*FAST, *PLAIN]


@pytest.mark.parametrize("name", ALL)
def test_bad_inputs_are_refused_in_one_line(name: str) -> None:
    module = module_of(name)
    x, mask = batch((3, 2))
    bad: list[tuple[Tensor, Tensor | None, str]] = [
        (x, mask.double(), r"mask has dtype torch.float64; expected torch.bool"),
        (x, mask[:, :2], r"mask has shape \[2, 2\]; expected \[2, 3\]"),
        (x, mask.to("meta"), r"mask is on meta; expected cpu"),
        (x[:, :0], None, r"x has shape \[2, 0, 12\], no positions; expected N >= 1"),
        (x[0], None, r"x has shape \[3, 12\]; expected \[B, N, 12\]"),
        (x[..., :5], None, r"x has shape \[2, 3, 5\]; expected \[B, N, 12\]"),
        (x.long(), None, r"x has dtype torch.int64; expected a floating dtype"),
    ]
    for call in (module, getattr(module, "attention", module)):
        for values, real, message in bad:
            with pytest.raises(ValueError, match=message) as caught:
                call(values, real)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mtsa", {"heads": 3}, "d_out=16 is not divisible by 3 heads"),
        ("mtsa", {"heads": 1}, "1 heads can't be halved"),
        ("mtsa", {"heads": 2, "masks": ["none"]}, "1 masks given for 2 heads"),
        ("mtsa", {"heads": 1, "masks": ["sideways"]}, "unknown mask 'sideways'; expected none, "),
        ("mtsa", {"heads": 1, "masks": ["window:-1"]}, "window:W, W an integer >= 0"),
        ("mtsa", {"heads": 1, "masks": ["window:1.5"]}, "window:W, W an integer >= 0"),
        ("mtsa", {"heads": 1, "masks": ["distance:x"]}, "distance:A, A a number >= 0"),
        ("mtsa", {"heads": 1, "masks": ["distance:nan"]}, "distance:A, A a number >= 0"),
        ("mtsa", {"heads": 2, "scale_t": "log"}, "scale_t='log'; expected 'log_sigmoid' or"),
        ("mtsa", {"heads": 2, "scale_s": None}, "scale_s=None; expected 'log_sigmoid' or"),
        ("mtsa", {"heads": 2, "activation": "gelu"}, "activation='gelu'; expected 'relu' or"),
        ("mtsa", {"heads": 2, "key_dim": 0}, "key_dim=0; expected an integer of at least 1"),
        ("mtsa", {"heads": 2, "key_size": 3}, "mtsa has no option 'key_size'; it has heads, "),
        ("mtsa_released", {"heads": 1}, "1 heads can't be halved"),
        ("mtsa_released", {"heads": 1, "include_self": True}, "1 heads can't be halved"),
        ("mtsa_released", {"heads": 2, "head_dim": 3}, "d_out=16, but heads [*] head_dim is 6"),
        ("mtsa_released", {"heads": 2, "output_hidden": 5}, "d_out=16, but output_hidden is 5"),
        ("mtsa_released", {"heads": 2, "directional": False, "include_self": True}, "refuses it"),
        ("mtsa_released", {"heads": 2, "fusion_gate": 1}, "fusion_gate=1; expected True or False"),
        ("multi_head", {"heads": 5}, "d_out=16 is not divisible by 5 heads"),
        ("multi_head", {"heads": 2, "positions": "learned"}, "positions='learned'; expected"),
        ("multi_head_released", {"heads": 2, "head_dim": 5}, "d_out=16, but heads [*] head_dim"),
        ("disa", {"direction": "up"}, "direction='up'; expected 'both' or 'forward'"),
        ("disa", {"heads": 2}, "disa has no option 'heads'"),
        ("multi_cnn", {"kernel_sizes": (3, 3)}, "expected different integers"),
        ("multi_cnn", {"kernel_sizes": (2, 3, 4)}, "d_out=16 is not divisible by 3 kernel sizes"),
        ("multi_cnn", {"kernel_sizes": 3}, "kernel_sizes=3; expected a list of integers"),
        ("kim_cnn", {"kernel_sizes": ()}, "kernel_sizes=\\[\\]; expected different integers"),
        ("kim_cnn", {"kernel_sizes": (2, 0)}, "kernel_sizes=0; expected an integer of at least 1"),
        ("kim_cnn", {"kernel_sizes": "345"}, "kernel_sizes='345'; expected a list of integers"),
        ("kim_cnn", {"kernel_sizes": (3, 4), "windows": "all"}, "windows='all'; expected 'real'"),
        ("biblosa", {"extra": -1}, "extra=-1; expected an integer of at least 0"),
        ("biblosa", {"tanh_scale": 0}, "tanh_scale=0; expected a number above 0"),
        ("bi_gru", {"reset": "late"}, "reset='late'; expected"),
        *(
            (name, {"heads": 2, "attention_dropout": rate}, "attention_dropout=.*below 1")
            for name in ("mtsa", "mtsa_released")
            for rate in (-0.1, 1.0, 1.5, True, "0.1", math.nan)
        ),
        *(
            (name, {"heads": 2, option: 1}, f"{option}=1; expected True or False")
            for name in ("mtsa", "mtsa_released")
            for option in ("token2token", "source2token")
        ),
        *(
            ("mtsa", {"heads": 2, "masks": masks}, "expected a list with one text per head")
            for masks in ("forward", 3, {"forward": 1, "none": 2}, {"none"})
        ),
        ("mtsa", {"heads": 1, "masks": ["distance:-0.5"]}, "distance:A, A a number >= 0"),
        ("mtsa_nmt", {"heads": 1, "bi_direction": True}, "1 heads can't be halved"),
        (
            "mtsa_nmt",
            {"heads": 4, "head_dim": 3, "output_layer": False},
            "heads [*] head_dim is 12",
        ),
        *(
            ("mtsa_stack", {"heads": 2, "ln_epsilon": value}, "ln_epsilon=.*a number above 0")
            for value in (0, -0.5, math.inf, math.nan, "1e-5", None)
        ),
        *(
            ("disa", {"tanh_scale": value}, "tanh_scale=.*; expected a number above 0")
            for value in ("5", None, 0, -1.0, math.inf, math.nan)
        ),
        *(
            ("hrchy_cnn", {"layers": value}, "layers=.*; expected an integer of at least 1")
            for value in (True, 2.0, 0, -1, "3", None)
        ),
        ("resa", {"unselected": "none"}, "unselected='none'; expected"),
        ("resa", {"selection": "hard"}, "selection='hard'; expected"),
        ("resa", {"rss_hidden": 0}, "rss_hidden=0; expected an integer of at least 1"),
        ("resa", {"rss_activation": "tanh"}, "activation='tanh'; expected"),
        ("resa", {"policy": "greedy"}, "policy='greedy'; expected"),
        ("resa", {"prefixes": "head"}, "prefixes='head'; expected"),
        ("resa", {"variant": "full"}, "resa has no option 'variant'"),
        ("resan", {"variant": "no_soft"}, "variant='no_soft' has no context fusion"),
        ("resan", {"prefixes": ()}, "resan has no option 'prefixes'"),
        ("resan_no_fusion", {"direction": "both"}, "has no option 'direction'"),
        ("msmsa", {"heads": 4, "scales": [1, 3]}, "2 scales given for 4 heads; give one per head"),
        ("msmsa", {"heads": 4, "scales": "n/4"}, "scales='n/4'; expected a list with one scale"),
        *(
            ("msmsa", {"heads": 2, "scales": [1, scale]}, f"scale {scale!r}; expected a number of")
            for scale in (0, "n/0", "N/4", True, math.inf)
        ),
        ("msmsa", {"width_reading": "half"}, "width_reading='half'; expected 'total' or 'radius'"),
        ("msmsa", {"scaling": "none"}, "scaling='none'; expected 'head_width' or 'model_width'"),
        ("msmsa", {"layer": True}, "d_out=16, but layer=True adds the output to x of d_in=12"),
        ("msmsa", {"layer": 1}, "layer=1; expected True or False"),
        ("msmsa", {"ln_epsilon": -1}, "ln_epsilon=-1; expected a number of at least 0"),
        ("msmsa", {"head_dim": 0}, "head_dim=0; expected an integer of at least 1"),
    ],
    ids=str,
)
def test_bad_options_are_refused_in_one_line(
    name: str, options: dict[str, Any], message: str
) -> None:
    mechanism = MECHANISMS[name]
    for implementation in mechanism.implementations:
        arguments = {**mechanism.options, **options, **implementation.options}
        heads = arguments.pop("heads", HEADS)
        if "heads" in options and not mechanism.takes_heads:
            arguments["heads"] = heads
        d_out = D_IN if mechanism.keeps_width else D_OUT
        with pytest.raises(BadOption, match=message) as caught:
            make(mechanism, implementation.factory, D_IN, d_out, heads, arguments)
        assert "\n" not in str(caught.value)


def made(name: str, d_out: int = 0, **options: Any) -> None:
    """Make a module of other options, and of another width than the usual one if it is given."""
    mechanism = MECHANISMS[name.partition(".")[0]]
    implementation = mechanism.implementation(name.partition(".")[2])
    d_out = d_out or (D_IN if mechanism.keeps_width else D_OUT)
    given = {**mechanism.options, **implementation.options, **options}
    make(mechanism, implementation.factory, D_IN, d_out, HEADS, given)


@pytest.mark.parametrize("name", ["disa.chunked", "bi_lstm.packed"])
def test_odd_widths_of_two_directions_are_refused(name: str) -> None:
    with pytest.raises(BadOption, match="d_out=15 is not divisible by 2 directions"):
        made(name, 15)


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="has no option 'no_such_option'"):
        made(name, no_such_option=1)


@pytest.mark.parametrize("name", [n for n in ALL if MECHANISMS[n.partition(".")[0]].keeps_width])
@pytest.mark.parametrize("d_out", [D_IN - 4, D_IN + 4])
def test_a_width_that_can_not_change_is_refused_both_ways(name: str, d_out: int) -> None:
    with pytest.raises(BadOption, match=f"d_out={d_out}, but"):
        made(name, d_out)


@pytest.mark.parametrize(
    "name",
    [
        *(f"{name}.fused" for name in ("mtsa", "mtsa_released", "mtsa_nmt", "mtsa_stack", "msmsa")),
        "multi_head.sdpa",
    ],
)
def test_an_unknown_backend_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="backend='fast'; expected"):
        made(name, backend="fast")
