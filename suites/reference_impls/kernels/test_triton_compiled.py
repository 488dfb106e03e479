"""Whether the Triton kernels are legal for a GPU is asked of the compiler, which needs none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_impls.kernels import triton
from reference_impls.kernels.triton import audit, device, ranking
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import (
    SHARED_BYTES,
    SHORTEST,
    TABLE,
    WIDTHS,
    Tile,
    candidates,
    choose,
    cut,
    read,
    tiles,
)
from reference_impls.mechanism import Unsupported
from suites.support.attending import Problem, masks_of
from suites.support.parameters import few

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
pytestmark = pytest.mark.skipif(device.interpreted(), reason="the interpreter compiles nothing")

from reference_impls.kernels.triton.compiled import (  # noqa: E402 (it imports triton)
    Compiled,
    Product,
    compile_launch,
    loads_of,
    steps_of,
)

# The table of tiles


@pytest.mark.parametrize("capability", [80, 90])
def test_tiles_are_chosen_by_width_and_none_is_longer_than_the_sequence(capability: int) -> None:
    for kind, by_numbers in tiles(capability).items():
        for numbers, by_width in by_numbers.items():
            assert tuple(by_width) == WIDTHS
            for width, tile in by_width.items():
                chosen = choose(kind, numbers, width, 10**6, capability=capability)
                assert chosen == tile
                assert choose(kind, numbers, width - 1, 10**6, capability=capability) == tile
                short = choose(kind, numbers, width, 20, capability=capability)
                assert max(short.rows, short.columns) <= SHORTEST
                assert set(candidates(kind, numbers, width, capability))


def test_a_smaller_tile_has_as_many_rows_to_a_warp() -> None:
    tile = Tile(128, 64, 8, 3)
    assert tile.of(64, 64) == Tile(64, 64, 4, 3)
    assert tile.of(16, 8) == Tile(16, 16, 1, 3)
    assert Tile(16, 16, 4, 2).of(8, 8) == Tile(16, 16, 4, 2)
    assert Tile(64, 32, 2, 2).of(16, 16) == Tile(16, 16, 1, 2)


def test_a_card_with_less_shared_memory_has_tiles_of_half_the_size() -> None:
    large = choose("forward", "half", 128, 10**6)
    small = choose("forward", "half", 128, 10**6, large=False)
    assert small == large.of(large.rows // 2, large.columns // 2)


@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (0, (16, 0)),
        (5, (16, 0)),
        (16, (16, 0)),
        (20, (32, 0)),
        (48, (32, 16)),
        (49, (64, 0)),
        (75, (64, 16)),
        (96, (64, 32)),
        (97, (128, 0)),
        (144, (128, 16)),
        (256, (256, 0)),
        (257, (256, 16)),
        (300, (256, 64)),
    ],
)
def test_a_width_is_cut_where_that_saves_columns(width: int, parts: tuple[int, int]) -> None:
    assert cut(width) == parts


@pytest.mark.parametrize(
    ("capability", "table"),
    [((8, 0), 80), ((8, 9), 80), ((9, 0), 90), ((10, 0), 90), ((12, 0), 80)],
)
def test_devices_take_the_tiles_of_what_multiplies_there(
    capability: tuple[int, int], table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert device.architecture() == table


def test_the_table_is_written_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "tiles.toml"
    copy.write_text(TABLE.read_text())
    monkeypatch.setattr(ranking, "TABLE", copy)
    ranking.rewrite([])
    assert copy.read_text() == TABLE.read_text()
    one = made("sm_90 forward half 64", tile=Tile(16, 32, 1, 2))
    ranking.rewrite([one])
    old, new = TABLE.read_text().splitlines(), copy.read_text().splitlines()
    assert [line for line in new if line not in old] == ["64 = [16, 32, 1, 2]"]
    assert len(new) == len(old)


def test_the_best_tile_is_within_all_limits_then_takes_the_fewest_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, square, flat = CELLS["sm_90 forward half 64"], (64, 64), (128, 32)
    cycles, held = {square: 95.0, flat: 100.0, (128, 64): 40.0, (128, 128): 30.0}, {2: 2, 3: 2}

    def fake(_: audit.KernelCell, tile: Tile) -> audit.KernelAudit:
        sides = tile.rows, tile.columns
        spilled = {(128, 64): 1, (128, 128): 1}.get(sides, 0)
        programs = held[tile.stages] if sides != (64, 128) else 0
        predicted = {"predicted": cycles.get(sides, 500.0)}
        return made(str(cell), tile=tile, local=spilled, programs=programs, cycles=predicted)

    monkeypatch.setattr(ranking, "audit", fake)
    found = [one.tile for one in ranking.ranked(cell)]
    assert found[:2] == [Tile(128, 32, 8, 3), Tile(128, 32, 8, 2)]
    assert found[2] == Tile(64, 64, 4, 2)
    assert found[-2:] == [Tile(128, 128, 8, 2), Tile(128, 64, 8, 2)]
    shallow = [tile for tile in candidates(cell.kind, cell.numbers, cell.width) if tile.stages == 2]
    assert {*found[1:]} == {*shallow} - {Tile(64, 128, 4, 2)}  # all there is room for
    held[3] = 1  # loading further ahead costs a program
    assert ranking.ranked(cell)[0].tile == Tile(128, 32, 8, 2)
    cycles[square] = 90.0  # what other projects doubt is worth it
    assert ranking.ranked(cell)[0].tile == Tile(64, 64, 4, 2)


def test_a_tile_has_room_in_every_form_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, short = CELLS["sm_80 key_gradient half 320"], CELLS["sm_80 key_gradient half 300 N64"]
    assert short.takes_tile_of(cell)
    assert not short.takes_tile_of(CELLS["sm_80 key_gradient half 256"])
    tight = Tile(16, 64, 8, 2)

    def fake(given: audit.KernelCell, tile: Tile) -> audit.KernelAudit:
        held = 0 if (str(given), tile) == (str(short), tight) else 1
        cycles = {"predicted": 1.0 if tile == tight else 2.0}
        return made(str(given), tile=tile, programs=held, cycles=cycles)

    monkeypatch.setattr(ranking, "audit", fake)
    best = ranking.ranked(cell)[0].tile
    assert best != tight
    assert best.stages == 3  # as many programs as with two


# The audit


CELLS = {str(cell): cell for cell in audit.cells()}
HEADLINE = [
    f"sm_90 {kind} half {width}"
    for kind in ("forward", "query_gradient", "key_gradient")
    for width in ("64", "75", "128", "75 N64")
]
"""Long sequences, and setting A as the goals have it."""


RANKED = [
    name
    for name, cell in CELLS.items()
    if cell.in_table and cell.numbers == "half" and cell.width <= 128
]
"""Of float32 and of wider heads seven tiles take the compiler minutes: theirs are only audited."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", RANKED)
def test_the_table_is_what_the_ranking_gives(name: str) -> None:
    cell = CELLS[name]
    print(audit.HEAD, *map(audit.line, found := ranking.ranked(cell)), sep="\n")
    predicted = read(TABLE, cell.capability)[cell.kind][cell.numbers][cell.width]
    assert predicted == found[0].tile


@pytest.mark.slow
@pytest.mark.parametrize("name", few(CELLS, HEADLINE))
def test_a_cell_is_within_its_limits(name: str) -> None:
    found = audit.audit(CELLS[name])
    print(audit.HEAD, audit.line(found), sep="\n")
    assert found.of_true >= 1
    assert audit.judged([found], *audit.exceptions()) == []


def test_exceptions_are_of_cells_and_limits_that_there_are() -> None:
    everything = made(issued=9.0, local=1, eights=1, narrow=1, by_warp=1, stack=999, shared=2**20)
    limits = set(everything.beyond())
    assert len(limits) == 7
    for cell, limit in audit.exceptions()[0]:
        assert cell in CELLS
        assert limit in limits


def made(
    name: str = HEADLINE[0], stack: int = 128, shared: int = 2**10, **counts: Any
) -> audit.KernelAudit:
    """An audit without a fault, but for these counts."""
    within = Compiled(registers=128, stack=stack, shared=shared, warps=8, steps=())
    cell = CELLS[name]
    clean = audit.KernelAudit(
        cell, cell.tile, within, 1.0, 1.0, 0, 6, 0, 0, 0, 1, {"predicted": 1.0}
    )
    return replace(clean, **counts)


def test_another_release_has_exceptions_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "exceptions.toml"
    file.write_text(
        'triton = "9.0"\n[stack."reason"]\n"a b" = 200\n"c" = 300\n[other."9.1"]\n"a b stack" = 400'
    )
    monkeypatch.setattr("triton.__version__", "9.0")
    assert audit.exceptions(file) == ({("a b", "stack"): 200, ("c", "stack"): 300}, True)
    monkeypatch.setattr("triton.__version__", "9.1")
    assert audit.exceptions(file) == ({("a b", "stack"): 400, ("c", "stack"): 300}, False)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("issued", 1.06),
        ("local", 1),
        ("eights", 1),
        ("narrow", 1),
        ("by_warp", 1),
        ("stack", 136),
        ("shared", 227 * 1024 + 1),
    ],
)
def test_what_is_beyond_a_limit_is_told_unless_it_is_named(limit: str, value: float) -> None:
    cell, over = HEADLINE[0], made(**dict[str, Any]({limit: value}))
    assert audit.judged([made()], {}) == []
    assert audit.judged([over], {(cell, limit): value}) == []
    (told,) = audit.judged([over], {})
    assert told.startswith(f"{cell}: {limit} {value:g}, not named; ")
    (told,) = audit.judged([over], {(cell, limit): value - 0.01})
    assert "named with" in told
    (told,) = audit.judged([made()], {(cell, limit): value, ("another", limit): value})
    assert told == f"{cell}: {limit} is within its limit; take the line out of exceptions.toml"
    assert audit.judged([made()], {(cell, limit): value}, all_needed=False) == []


def test_instructions_of_warps_are_right_where_there_are_none_of_groups() -> None:
    assert made("sm_80 forward half 64", by_warp=8).beyond() == {}
    assert made("sm_90 forward single 64", by_warp=8).beyond() == {}


CODE = """
.text.kernel:
        /*0000*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT ;
.L_x_0:
        /*0010*/                   LDL R1, [R2] ;
.L_x_1:
        /*0020*/              @!P0 HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0030*/                   HGMMA.64x32x8.F32.TF32 R88, R120, gdesc[UR8].tnspB, R88 ;
        /*0040*/                   HMMA.1688.F32.TF32 R4, R8, R12, R4 ;
        /*0050*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0060*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0070*/             @!UP1 STL.64 [R1], R2 ;
        /*0080*/               @P0 BRA `(.L_x_2) ;
        /*0090*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
        /*00a0*/               @P1 BRA `(.L_x_0) ;
.L_x_3:
        /*00b0*/                   FADD R1, R2, R3 ;
        /*00c0*/               @P1 BRA `(.L_x_3) ;
.L_x_4:
        /*00d0*/                   BRA `(.L_x_4);
"""


def test_a_step_is_the_innermost_loop_with_products() -> None:
    (step,) = steps_of(CODE)
    assert step == {
        Product(64, 64, 16, False, True, True): 1,
        Product(64, 32, 8, True, True, False): 1,
        Product(16, 8, 8, True, False): 1,
        Product(16, 8, 16, False, False): 2,
        "STL.64": 1,
        "BRA": 2,
    }
    with pytest.raises(RuntimeError, match=r"nobody counts: QGMMA\.64x64x32"):
        steps_of(CODE.replace("HMMA.1688.F32.TF32", "QGMMA.64x64x32.F32"))


def test_copies_of_16_bytes_of_8_and_other_loads_are_told_apart() -> None:
    others = {"LDG.E.128": 2, "LDGSTS.E.64": 3, "LDGSTS.E": 5, "LDGDEPBAR": 7, "LDS.64": 9}
    assert loads_of(others) == (0, 3, 7)
    wide = others | {"LDGSTS.E.BYPASS.128": 4, "LDGSTS.E.128": 1, "UTMALDG.2D": 1}
    assert loads_of(wide) == (6, 3, 7)


def test_both_forms_of_setting_a_are_audited() -> None:
    short = {(cell.width, cell.length) for cell in CELLS.values() if cell.length < 512}
    assert short == {(75, 64), (300, 64)}, "8 heads, and the 2 of Table 1"
    for width in (75, 300):
        assert len([name for name in CELLS if name.endswith(f" {width} N64")]) == 2 * 3 * 2


def test_a_tile_is_not_refused_for_what_the_audit_only_tells() -> None:
    told, broken = made(eights=3), made(narrow=3)
    assert list(told.beyond()) == ["eights"]
    assert ranking._order(told) == ranking._order(made())
    assert ranking._order(broken) > ranking._order(made())
    assert ranking._order(replace(told, copies=0)) == ranking._order(broken), "nothing is wide"


def test_programs_are_as_many_as_registers_shared_memory_and_warps_allow() -> None:
    hopper = audit.DEVICES[90]
    assert audit.programs(hopper, Compiled(64, 0, 1024, 4, ())) == 8
    assert audit.programs(hopper, Compiled(65, 0, 1024, 4, ())) == 7  # 72 are set aside
    assert audit.programs(hopper, Compiled(32, 0, 1024, 16, ())) == 4
    assert audit.programs(hopper, Compiled(32, 0, 75 * 1024, 4, ())) == 3
    assert audit.programs(hopper, Compiled(32, 0, 75 * 1024 + 512, 4, ())) == 2  # 1 KiB is lost
    assert audit.programs(hopper, Compiled(255, 0, 1024, 16, ())) == 0


def test_the_prediction_is_the_longest_part_and_what_is_not_hidden_of_the_others() -> None:
    cell, tile = CELLS[HEADLINE[0]], Tile(128, 64, 8, 3)
    step = {
        Product(64, 64, 16, False, True, True): 4,
        Product(64, 64, 16, False, True, False): 8,
        "MUFU.EX2": 32,
        "MUFU.RCP": 32,
        "LDGSTS.E.BYPASS.128": 6,
        "LDS.64": 8,
        "LDSM.16.M88.4": 2,
        "STL.64": 3,
    }
    found = audit.predicted(cell, tile, Compiled(244, 0, 90112, 8, ()), step)
    assert found.pop("predicted") == pytest.approx(128 + (sum(found.values()) - 128) / 2)
    assert found["tensor"] == 3 * 64 * 1024 / 2048  # multiplications of a pair, over the rate
    assert found["exponentials"] == 2 * 1024 / 16
    assert found["instructions"] == 95 * 8 / 4 / 8
    by_groups = 2 * 16 * 2 * (4 * 128 + 8 * 64)
    assert found["shared"] == (by_groups + 256 * (8 * 8 + 2 * 16 + 3 * 8)) / 128 / 8
    moved = 3 * 64 * 64 * 2 + 256 * 3 * 8
    assert found["cached"] == pytest.approx(moved / (5120 / 132) / 8)


def test_the_command_tells_what_it_can_not_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        audit.main(["--only", "sideways"])
    assert (
        "given --only 'sideways'; expected part of one of sm_80 forward" in capsys.readouterr().err
    )
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert audit.main([]) == 2
    assert capsys.readouterr().err.startswith("nothing to audit: TRITON_INTERPRET=1 is set")
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda _: None)
    assert audit.main([]) == 2
    assert capsys.readouterr().err.startswith("nothing to audit: the package triton is missing")


def test_the_ranking_tells_what_it_can_not_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert ranking.main([]) == 2
    assert capsys.readouterr().err.startswith("nothing to rank: TRITON_INTERPRET=1 is set")


def test_the_command_prints_a_row_a_cell_and_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "audit", lambda cell: made(str(cell)))
    monkeypatch.setattr(audit, "exceptions", lambda: ({}, True))
    assert audit.main(["--only", "forward half 75", "--capability", "90"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading == audit.HEAD
    assert [row[:30].strip() for row in rows] == [
        "sm_90 forward half 75",
        "sm_90 forward half 75 N64",
    ]
    monkeypatch.setattr(audit, "audit", lambda cell: made(str(cell), local=3))
    assert audit.main(["--only", HEADLINE[0]]) == 1
    assert f"{HEADLINE[0]}: local 3, not named" in capsys.readouterr().err


# What options make of the kernels


SPILLED_BYTES = 256
"""Of a thread, on its stack: with masks, dropout and padding the edges have more to hold."""


def _launches(problem: Problem, dtype: torch.dtype) -> dict[str, Any]:
    """The launches of both passes by the kernels' names; nothing is run."""
    from reference_impls.kernels.triton import launch

    call = problem.call(dtype)
    inputs = Inputs(call, precise=dtype == torch.float32)
    found = launch.Outputs.of(inputs, save=True)
    gradients = inputs.gradients()
    launches = [
        *launch.forward(inputs, found, True),
        *launch.backward(inputs, found, call.v, gradients),
    ]
    return {one.kernel.fn.__name__: one for one in launches}


def sized(d: int, **options: Any) -> Problem:
    """256 tokens and heads of width d; s has as many columns unless it is said."""
    masks = masks_of("forward", "backward", "none")
    return Problem(**{"n": 256, "masks": masks, "d_i": d, "d_v": d, "columns": d, **options})


COMPILED = {
    "half-64-identity-dropout-padded": (
        sized(64, scale_t="identity", padding="tail", keep=0.9),
        torch.bfloat16,
    ),
    "half-75-one-column": (sized(75, columns=1), torch.bfloat16),
    "half-300-padded": (sized(300, padding="tail"), torch.bfloat16),
    "f16-32-plain": (sized(32, columns=None, scale_t="identity"), torch.float16),
}


CRAMPED = {
    "half-128": (sized(128), torch.bfloat16),
    "half-300": (sized(300), torch.bfloat16),
    "single-75": (sized(75), torch.float32),
}
"""What takes most of the shared memory, and the heads of setting A."""
CRAMPED_STACK = {("single-75", "key_gradient_kernel"): 928}
"""More sums than registers, as the audit's exceptions say of 8.0. Ten other tiles have 680 to 2,544
bytes: it takes another cut of 75 in float32."""
CARDS = {90: (90, True, SHARED_BYTES[90]), 86: (80, False, 99 * 1024)}
"""By capability: whose tiles a card takes, whether large ones, and its shared memory."""
ON_CARDS = [*((name, 90) for name in COMPILED), *((name, 86) for name in CRAMPED)]


@pytest.mark.slow
@pytest.mark.parametrize("given", few(ON_CARDS, [("half-64-identity-dropout-padded", 90)]), ids=str)
def test_a_card_can_run_it(given: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    name, capability = given
    architecture, large, shared = CARDS[capability]
    inputs = "reference_impls.kernels.triton.inputs"
    monkeypatch.setattr(f"{inputs}.PACKED_FROM", 0)
    monkeypatch.setattr(f"{inputs}.large_tiles", lambda _: large)
    monkeypatch.setattr(f"{inputs}.architecture", lambda _: architecture)
    for kernel, launch in _launches(*{**COMPILED, **CRAMPED}[name]).items():
        found = compile_launch(launch, capability)
        print(f"{name} {kernel}: {found.shared} shared, {found.registers} registers, {found.stack}")
        assert found.shared <= shared, kernel
        assert found.stack <= CRAMPED_STACK.get((name, kernel), SPILLED_BYTES), kernel


REPAIRED = {
    **COMPILED,
    "float64": (sized(64), torch.float64),
}


@pytest.mark.slow
@pytest.mark.parametrize("capability", [pytest.param(80, marks=pytest.mark.nightly), 90])
@pytest.mark.parametrize("name", few(REPAIRED, ["half-64-identity-dropout-padded"]))
def test_a_device_can_repair_what_underflows(name: str, capability: int) -> None:
    """Rare work, always launched: it must be legal there, whatever the heads and numbers."""
    from reference_impls.kernels.triton import repair

    problem, dtype = REPAIRED[name]
    inputs = Inputs(problem.call(dtype), precise=dtype != torch.bfloat16)
    out, _, flagged, inverse, _ = inputs.outputs(save=True)
    room = torch.empty(2, *inputs.v.shape[:3], inputs.pitch, dtype=inputs.products)
    means = room[0], room[1]
    gradients = inputs.gradients()
    launches = [
        repair.forward(inputs, flagged, out, inverse, True),
        *repair.backward(inputs, flagged, inverse, means, inputs.v, gradients),
    ]
    assert len(launches) == 3
    for one in launches:
        found = compile_launch(one, capability)
        assert found.shared <= 48 * 1024
        assert found.stack <= SPILLED_BYTES, "of memory that a device sets aside for every thread"


def test_a_card_with_less_shared_memory_says_what_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "usable", lambda: "")
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    q = torch.zeros(1, 1, 2, 129)
    with pytest.raises(Unsupported, match="129 wide; expected at most 128 on this device"):
        triton.refuse(q, q)
    triton.refuse(q[..., :128], q[..., :128])


def test_more_sequences_than_the_kernels_count_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "usable", lambda: "")
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    monkeypatch.setattr(triton, "widest", lambda *_: 256)
    one = torch.zeros(1, 1, 1, 64)
    with pytest.raises(Unsupported, match="16 heads of 2,097,152 sequences, 64 wide, are more"):
        triton.refuse(one.expand(16, 2**21, 1, 64), one.expand(16, 2**21, 1, 64))
    triton.refuse(one.expand(15, 2**21, 1, 64), one.expand(15, 2**21, 1, 64))


def test_a_kernel_that_does_not_fit_is_refused_in_one_line() -> None:
    from triton.runtime.errors import OutOfResources

    from reference_impls.kernels.triton.launch import Launch

    class TooLarge:
        def __getitem__(self, _: object) -> Any:
            def start(**_: object) -> None:
                raise OutOfResources(131072, 101376, "shared memory")

            return start

    with pytest.raises(Unsupported, match=r"Required: 131072, .* take fused_tiled") as caught:
        Launch(TooLarge(), 1, {}, {}).run()
    assert "\n" not in str(caught.value)
