"""The Multi-Scale Transformer: presets of the paper, and models that do not exist."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from harness.build import make
from harness.registry import builtins
from harness.verify.batches import Batch
from harness.verify.check import check_batch
from reference_impls.mechanism import BadOption
from reference_impls.multi_scale_transformer.modules import WindowedMultiScaleTransformer
from reference_impls.multi_scale_transformer.presets import PRESETS
from suites.support.parameters import few

TELLING = ("sst", "ptb_pos", "table6_f", "mirrored_flex", "mirrored_deephier_s", "sst_transformer")


@pytest.mark.parametrize("name", few(PRESETS, TELLING))
def test_a_preset_is_verified_as_what_it_stands_for(name: str) -> None:
    """Its heads and its width, which no trial of another configuration has."""
    preset = PRESETS[name]
    mechanism = builtins()[preset.model]
    implementation = mechanism.implementation(mechanism.default)
    d, options = preset.d_model, {**mechanism.options, "preset": name}
    module, spelled = (
        cast(Any, make(mechanism, implementation.factory, d, preset.d_out, 0, given))
        for given in (options, dict(preset.options))
    )
    assert {n: w.shape for n, w in module.state_dict().items()} == {
        n: w.shape for n, w in spelled.state_dict().items()
    }
    assert module.d_model == d
    assert module.l0_q_w.shape == (preset.options["heads"], d, preset.options["head_dim"])
    if preset.model == "multi_scale_transformer":
        assert module.scales == spelled.scales
    trial = Batch(name, {"preset": name}, (7, 4))
    found, _ = check_batch(mechanism, implementation, trial, "f64", "cpu")
    assert all(deviation.ok for deviation in found)
    assert len(found) > 6


MS, TRANS = "multi_scale_transformer", "transformer"


TABLE_1 = (1, 3, "n/16", "n/8", "n/4")


STATED: dict[str, tuple[str, int, int, int, int]] = {
    # Model, width, heads, width of a head, layers: Tables 1 and 6 and the experiment of figure 2;
    # layers where they are not printed, and all of the Transformers', are ours (see `Preset.ours`).
    **dict.fromkeys(("sst", "mtl16", "ptb_pos", "conll2003", "conll2012"), (MS, 300, 10, 30, 3)),
    **dict.fromkeys(["snli", *(f"table6_{c}" for c in "abcdefghi")], (MS, 600, 5, 64, 3)),
    **dict.fromkeys(("mirrored_hier_s", "mirrored_flex"), (MS, 50, 10, 5, 2)),
    "mirrored_deephier_s": (MS, 50, 10, 5, 6),
    "sst_transformer": (TRANS, 300, 10, 30, 3),
    "mtl16_transformer": (TRANS, 300, 10, 30, 3),
    "snli_transformer": (TRANS, 600, 5, 64, 3),
    "mirrored_transformer": (TRANS, 50, 10, 5, 2),
}


SINGLE: dict[str, int | str] = {
    "mirrored_hier_s": 3,
    "mirrored_deephier_s": 3,
    "table6_f": 3,
    "table6_g": "n/16",
    "table6_h": "n/8",
    "table6_i": "n/4",
}


ALPHA = {
    "sst": 0.5,
    "mtl16": 0.5,
    "snli": 0.5,
    "ptb_pos": 1.0,
    "conll2003": 1.0,
    "conll2012": 1.0,
    "table6_a": 1.0,
    "table6_b": 0.5,
    "table6_c": 0.0,
    "table6_d": -0.5,
    "table6_e": -1.0,
}


def test_presets_are_those_of_the_papers_tables() -> None:
    assert set(STATED) == set(PRESETS)
    for name, preset in PRESETS.items():
        o = preset.options
        found = (preset.model, preset.d_model, o["heads"], o["head_dim"], o["layers"])
        assert found == STATED[name], name
        # [CLS] beside max-pooling doubles the width; where words are tagged there is no [CLS].
        tagged = name in ("ptb_pos", "conll2003", "conll2012")
        assert preset.d_out == preset.d_model * (1 if tagged else 2), name
        assert o.get("alpha") == ALPHA.get(name), name
        if name in ALPHA:
            wanted = (1, 3, 5, 7, 9) if tagged else TABLE_1
            assert tuple(o.get("candidates", TABLE_1)) == wanted, name
            assert "scales" not in o, name
        if name in SINGLE:
            assert o["scales"] == [[SINGLE[name]] * o["heads"]] * o["layers"], name


def test_heads_of_a_preset_have_the_widths_of_its_scales() -> None:
    def scales(name: str) -> list[list[int]]:
        preset = PRESETS[name]
        module = WindowedMultiScaleTransformer(preset.d_model, preset.d_out, preset=name)
        return [[scale.width(160) for scale in layer] for layer in module.scales]

    assert scales("sst")[0] == [1] * 5 + [3] * 2 + [11] * 2 + [21]
    assert scales("ptb_pos")[-1] == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]
    assert scales("mirrored_flex") == [[3, 3, 11, 11, 21, 21, 41, 41, 81, 81]] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "sst", "layers": 5}, "layers=5, but preset sst has 3; leave one of them out"),
        ({"preset": "sst", "heads": 4}, "heads=4, but preset sst has 10"),
        ({"preset": "snli", "alpha": 0.7}, "alpha=0.7, but preset snli has 0.5"),
        ({"preset": "mirrored_flex", "scales": [[3] * 10] * 2}, "preset mirrored_flex has"),
        ({"preset": "imdb"}, "preset='imdb'; expected sst, mtl16, snli"),
        ({"heads": 10, "head_dim": 0}, "head_dim=0; expected an integer of at least 1"),
        ({"heads": 10, "scales": "1,3"}, "scales='1,3'; expected one list of scales per layer"),
        ({"heads": 10, "scales": 3}, "scales=3; expected one list of scales per layer"),
        ({"heads": 10, "scales": []}, "scales of 0 layers given for 2"),
        ({"preset": "sst_transformer"}, "preset='sst_transformer'; expected sst"),
        ({"preset": "mirrored_flex"}, "d_out=600, but preset mirrored_flex has 100"),
        ({"heads": 10, "readout": "max"}, "readout='max' with cls=True; expected"),
        ({"heads": 10, "cls": False}, "readout='concat' with cls=False; expected"),
        ({"heads": 10, "scales": [[1] * 10]}, "scales of 1 layers given for 2"),
        ({"heads": 10, "scales": [[1], [1]]}, "1 scales given for 10 heads; give one per head"),
        ({"heads": 10, "alpha": math.nan}, "alpha=nan; expected a finite number"),
        ({"heads": 10, "candidates": []}, r"candidates=\[\]; expected a list of scales"),
        ({"heads": 10, "candidates": (1, "n")}, "scale 'n'; expected a number of at least 1, or"),
        ({}, "heads=None; expected an integer of at least 1"),
        ({"heads": 10, "depth": 3}, "multi_scale_transformer has no option 'depth'; it has heads"),
    ],
    ids=str,
)
def test_models_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message) as caught:
        WindowedMultiScaleTransformer(300, 600, **options)
    assert "\n" not in str(caught.value)
