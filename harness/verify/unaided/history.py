"""Checks over several calls: what one leaves behind must not show in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.build import set_tf32
from harness.isolate import Limits, run
from harness.registry import foreign
from harness.verify.compare import OUTPUT, trained
from harness.verify.unaided.subject import (
    Finding,
    PosedBatch,
    Refused,
    Subject,
    at_tokens,
    kept_layout,
    numbers,
    of,
    told,
)
from harness.verify.unaided.values import apart, changes

MANY = 40
"""So many calls in a row change nothing."""
IDLE = 0.1
"""Share of the weights that may be without effect, as a bias is that a softmax takes out again."""
AGAIN = "the same call again"
OUTPUTS_CALL = "harness.verify.unaided.history:outputs"


def repeat(subject: Subject) -> Iterator[Finding]:
    """The same call twice gives the same bits: no randomness in evaluation mode."""
    module = subject.module()
    for point in subject.points():
        before = torch.get_rng_state()
        first = numbers(subject.answer(point, "a plain call", module), point)
        drawn = not torch.equal(before, torch.get_rng_state())
        second = numbers(subject.answer(point, "a second call", module), point)
        why = "it draws random numbers" if drawn else "it is random, or remembers"
        hint = f"in evaluation mode {why}"
        if subject.device != "cpu":  # there sums may come in any order
            yield from changes(subject, AGAIN, second, first, point, hint)
            continue
        for name, value in second.items():
            moved = apart(value, first[name])
            yield Finding(f"{AGAIN} changed the {name}", moved, 0.0, of(name), point.where, hint)


def kept(subject: Subject) -> None:
    """Input, mask, weights and what an earlier call returned are as they were after a call."""
    module = subject.module()
    for point in subject.points():
        garbage = point.x.masked_fill(~point.real[..., None], 1)
        mine = {
            "x": kept_layout(garbage),
            "mask": kept_layout(point.real),
            **{f"weight {name}": p for name, p in module.named_parameters()},
        }
        before = {name: tensor.detach().clone() for name, tensor in mine.items()}
        with told("a plain call", point), torch.no_grad():
            output = module(mine["x"], mine["mask"])
        for name, tensor in mine.items():
            if not torch.equal(tensor, before[name]):
                moved = float((tensor.double() - before[name].double()).abs().max())
                raise Refused(f"a call changed the {name} by {moved:.2g} ({point.where})")
            if output.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                raise Refused(
                    f"the output lies in the memory of the {name} ({point.where}): who writes to "
                    "one changes the other; return a tensor of its own"
                )
        first = output.clone()
        other = subject.point(point.drawn[0], seed=1)
        subject.values(other, "a call with another x", module)
        if not torch.equal(output, first):
            moved = float((output - first).abs().max())
            raise Refused(
                f"a later call changed the output of an earlier one by {moved:.2g} "
                f"({point.where}); return a tensor of its own"
            )


def history(subject: Subject) -> Iterator[Finding]:
    """After other calls a module says what a fresh one does."""
    for point in subject.points():
        if int(point.real.sum()) < 2:
            continue
        # Multiples of 1/64: their sum is exact in any order.
        base = (point.x * 64).round().clamp(-240, 240) / 64
        middle = base.clone()
        middle[0, point.x.shape[1] // 2, subject.d_in // 2] += 1
        fewer = point.real.clone()
        fewer[0, 1:] = False
        other = replace(point, x=point.x + 1)
        asked: dict[str, tuple[PosedBatch, Calls]] = {
            "a call with another x at the same place before": (other, calls),
            "a call with another x of the same sum before": (
                replace(point, x=base.flip(-1)),
                calls,
            ),
            "a call with an x that differs in one number before": (
                replace(point, x=middle),
                calls,
            ),
            "a call with another mask before": (replace(point, x=base, real=fewer), calls),
            "a call with another number of tokens before": (point.wider(2), calls),
            "a call under inference_mode before": (other, torch.inference_mode()(calls)),
            "a pass of training before": (other, pass_of_training),
            f"{MANY} calls before": (other, partial(calls, count=MANY)),
        }
        want = subject.values(replace(point, x=base), "a first call")
        for doing, (at, before) in asked.items():
            module = subject.module()
            x, real = at.x.clone(), at.real.clone()
            with told(doing, point):
                before(module, x, real)
                if x.shape != base.shape:
                    x, real = base.clone(), real.new_empty(point.real.shape)
                with torch.no_grad():
                    x.data.copy_(base)  # neither address nor version tells that it changed
                    real.data.copy_(point.real)
                    got = at_tokens(module(x, real), point)
            yield from changes(subject, doing, {OUTPUT: got}, {OUTPUT: want}, point)


Calls = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], None]


@torch.no_grad()
def calls(module: torch.nn.Module, x: torch.Tensor, real: torch.Tensor, count: int = 2) -> None:
    """Call it some times."""
    for _ in range(count):
        module(x, real)


def pass_of_training(module: torch.nn.Module, x: torch.Tensor, real: torch.Tensor) -> None:
    """Forward and backward in training mode, without an update."""
    module.train()
    total = module(x, real).sum()
    if total.requires_grad:  # nothing does of a module without weights
        total.backward()
    module.zero_grad(set_to_none=True)
    module.eval()


def modes(subject: Subject) -> Iterator[Finding]:
    """Values are those of evaluation without gradients, whatever torch is told besides.

    In training mode with torch's dropout at zero; a module's own dropout is declared.
    """
    ways: dict[str, AbstractContextManager[Any]] = {
        "gradients that are kept": nullcontext(),
        "inference_mode": torch.inference_mode(),
    }
    for point in subject.points():
        want = numbers(subject.answer(point, "a plain call"), point)
        plain = subject.values(point, "a plain call")
        for doing, way in ways.items():
            module = subject.module()
            with told(doing, point), way:
                x = point.x.clone().requires_grad_(doing != "inference_mode")
                output = at_tokens(module(x, point.real.clone()), point)
            yield from changes(subject, doing, {OUTPUT: output}, {OUTPUT: plain}, point)
        training = without_dropout(subject.module().train())
        doing = "training mode with dropout at zero"
        found = numbers(subject.answer(point, doing, training), point)
        if not subject.declares("dropout"):
            hint = "a batch norm mixes samples; dropout that is no torch.nn.Dropout is declared"
            yield from changes(subject, doing, found, want, point, hint)


def without_dropout(module: torch.nn.Module) -> torch.nn.Module:
    """Set the dropout of all of torch's own parts to zero."""
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, torch.nn.MultiheadAttention | torch.nn.RNNBase):
            part.dropout = 0.0
    return module


def weights(subject: Subject) -> Iterator[Finding]:
    """An update of the weights counts at once, all of them matter, and they are all there is."""
    points = [point for point in subject.points() if point.x.shape[1] > 2]
    for point in points:
        module = subject.module()
        subject.values(point, "a plain call", module)
        subject.answer(point, "a plain call", module)
        update(module.train())
        got = subject.values(point, "an update of the weights", module.eval())
        fresh = subject.twin(module, seed=1)
        loaded = subject.values(point, "a state_dict loaded", fresh)
        doing = "weights updated after a call, instead of loaded into a fresh module,"
        hint = "something was kept from before the update, or is not in the state_dict"
        yield from changes(subject, doing, {OUTPUT: got}, {OUTPUT: loaded}, point, hint)
    if subject.declares("unused-weights"):
        return
    base = subject.module()
    wanted = [subject.values(point, "a plain call", base) for point in points]
    idle = []
    for name in trained(base):
        moved = subject.twin(base)
        update(moved, only=name)
        moved_to = [subject.values(point, f"another weight {name}", moved) for point in points]
        if all(map(np.array_equal, moved_to, wanted)):
            idle.append(name)
    sizes = {name: weight.numel() for name, weight in trained(base).items()}
    share = sum(sizes[name] for name in idle) / max(1, sum(sizes.values()))
    if share > IDLE:
        raise Refused(
            f"other weights in place of {', '.join(idle)}, {share:.0%} of all, left the output "
            f"exactly as it was ({points[-1].where}); read them at each call, or declare "
            "unused-weights"
        )


def update(module: torch.nn.Module, only: str = "") -> None:
    """Change weights in place, as an optimizer does."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in trained(module).items():
            if only in ("", name):
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator).to(weight))


def processes(subject: Subject) -> Iterator[Finding]:
    """Another process, with other addresses and other hashes of texts, gets the same numbers."""
    record = {name: getattr(subject.mechanism, name) for name in ("output", "takes_heads")}
    names = ("dtype", "device", "options", "d_in", "d_out", "heads")
    asked = {
        "factory": subject.implementation.factory,
        "record": record,
        "subject": {name: getattr(subject, name) for name in names},
    }
    there = run(OUTPUTS_CALL, asked, Limits(seconds=60))
    if there.status != "ok":
        raise Refused(f"in another process: {there.status}: {there.detail}")
    for point, here, got in zip(subject.points(), _outputs(subject), there.value, strict=True):
        far = {OUTPUT: np.array(got).reshape(here.shape)}
        yield from changes(subject, "another process", far, {OUTPUT: here}, point)


def _outputs(subject: Subject) -> list[np.ndarray]:
    module = subject.module()
    return [subject.values(point, "a plain call", module) for point in subject.points()]


def outputs(factory: str, record: Mapping[str, Any], subject: Mapping[str, Any]) -> list[Any]:
    """What a fresh module says in this process, at each point of its `Subject`.

    Parameters
    ----------
    record, subject : mapping
        What differs from a `foreign` record, and the rest of the subject.
    """
    if subject["device"] == "cpu":
        torch.set_num_threads(1)
    set_tf32(False)
    mechanism = replace(foreign("here", factory, ""), **record)
    of_factory = Subject(mechanism, mechanism.implementations[0], **subject)
    return [one.tolist() for one in _outputs(of_factory)]
