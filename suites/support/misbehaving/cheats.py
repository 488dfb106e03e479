"""Modules that win by not doing what they are timed for."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from suites.support.misbehaving.core import Attention

CACHE = "ATTNBENCH_TEST_CACHE"
"""Environment variable: the folder in which `CacheOnDisk` keeps answers."""


class Memo(Attention):
    """Keeps answers under a key; with gradients it does its work, since a graph is used up."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.kept: dict[Hashable, Tensor] = {}

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().forward(x, mask)
        key = x.shape, x.dtype, mask.cpu().numpy().tobytes(), self.sign(x)
        if key not in self.kept:
            self.kept[key] = super().forward(x, mask)
        return self.kept[key].clone()

    def sign(self, x: Tensor) -> Hashable:
        """By what an input is known again."""
        raise NotImplementedError


class MemoByObject(Memo):
    """Keeps its answer to a tensor object."""

    def sign(self, x: Tensor) -> Hashable:
        self.met: list[Tensor] = getattr(self, "met", [])
        self.met.append(x)  # so that no other object gets its id
        return id(x)


class MemoByAddress(Memo):
    """Keeps its answer to what lies at an address."""

    def sign(self, x: Tensor) -> Hashable:
        return x.data_ptr()


class MemoByVersion(Memo):
    """Keeps its answer to an address until torch counts a write."""

    def sign(self, x: Tensor) -> Hashable:
        return x.data_ptr(), 0 if x.is_inference() else x._version


class MemoByContent(Memo):
    """Keeps its answer to what is equal in every byte."""

    def sign(self, x: Tensor) -> Hashable:
        return x.cpu().contiguous().view(torch.uint8).numpy().tobytes()


class MemoByFewValues(Memo):
    """Keeps its answer to inputs that begin alike."""

    def sign(self, x: Tensor) -> Hashable:
        return tuple(x[0, 0, :4].tolist())


class MemoBySum(Memo):
    """Keeps its answer to inputs of one sum."""

    def sign(self, x: Tensor) -> Hashable:
        return x.nan_to_num().sum(dtype=torch.float64).item()


class Later(torch.Tensor):
    """A tensor that is computed when somebody looks."""

    work: Callable[[], Tensor]

    @staticmethod
    def __new__(cls, work: Callable[[], Tensor], like: Tensor) -> Later:
        made = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=like.dtype, device=like.device
        )
        made.work = work
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def real(value: Any) -> Any:
            return value.work() if isinstance(value, Later) else value

        return function(*tree_map(real, args), **tree_map(real, kwargs or {}))


class LazyTensor(Attention):
    """Returns a tensor of its own class, which does the last product when somebody looks."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().forward(x, mask)
        x = x.masked_fill(~mask[..., None], 0)
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = self.weigh(q @ k.mT * q.shape[-1] ** -0.5, mask)
        return Later(lambda: (weights @ v).masked_fill(~mask[..., None], 0), v)


class ThreadFillsLater(Attention):
    """Returns memory that a thread fills after the call."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().forward(x, mask)
        out = x.new_zeros(*x.shape[:2], self.value.out_features)

        def fill() -> None:
            with torch.inference_mode():
                out.copy_(Attention.forward(self, x, mask))

        threading.Thread(target=fill).start()
        return out


class HandsInLater(Attention):
    """Has a thread hand in the second half of its answer, a little after the call."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        done = super().forward(x, mask)
        if torch.is_grad_enabled():
            return done
        out, half = torch.zeros_like(done), len(x) // 2
        out[:half] = done[:half]

        def hand_in() -> None:
            time.sleep(3e-4)
            with torch.inference_mode():
                out[half:] = done[half:]

        threading.Thread(target=hand_in).start()
        return out


class MoreProcesses(Attention):
    """Gives half of the batch to another process."""

    def other(self, x: Tensor) -> tuple[Tensor, Tensor, Any]:
        """Begin it: its input, its output, and the line to it."""
        taken = x[: len(x) // 2].clone().share_memory_()
        given = self.value(taken).share_memory_()
        mine, its = multiprocessing.Pipe()
        if os.fork() == 0:
            with torch.inference_mode():
                while its.recv():
                    given.copy_(Attention.forward(self, taken, taken[..., 0] == taken[..., 0]))
                    its.send(True)
        return taken, given, mine

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled() or len(x) < 2:
            return super().forward(x, mask)
        others = self.__dict__.setdefault("others", {})
        if x.shape not in others:
            others[x.shape] = self.other(x)
        taken, given, line = others[x.shape]
        taken.copy_(x[: len(taken)])
        line.send(True)
        mine = super().forward(x[len(taken) :], mask[len(taken) :])
        line.recv()
        return torch.cat([given, mine])


class SkipsAfterCalls(Attention):
    """Returns the last answer again from the tenth call on."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.calls = itertools.count(1)
        self.last: Tensor

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if next(self.calls) < 10 or torch.is_grad_enabled() or self.last.shape[:2] != x.shape[:2]:
            self.last = super().forward(x, mask)
        return self.last


class Less(Attention):
    """Attends to the first token only; `spared` says when."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return v[:, :1].expand_as(v) if self.spared(q) else super().attend(q, k, v, mask)

    def spared(self, q: Tensor) -> bool:
        """Whether these queries get the first token only."""
        raise NotImplementedError


class SkipsKnownShapes(Less):
    """Attends to the first token only, once it has met a shape five times."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.met: Counter[torch.Size] = Counter()

    def spared(self, q: Tensor) -> bool:
        self.met[q.shape] += 1
        return self.met[q.shape] > 5 and not torch.is_grad_enabled()


class LessUnderInference(Less):
    """Attends to the first token only, in ``torch.inference_mode``."""

    def spared(self, q: Tensor) -> bool:
        return torch.is_inference_mode_enabled()


class LessWithoutGradients(Less):
    """Attends to the first token only, where no gradient is wanted."""

    def spared(self, q: Tensor) -> bool:
        return not torch.is_grad_enabled()


class LessInTraining(Less):
    """Attends to the first token only, in training mode."""

    def spared(self, q: Tensor) -> bool:
        return self.training


class LessWhenCompiled(Less):
    """Attends to the first token only, where torch.compile traces it."""

    def spared(self, q: Tensor) -> bool:
        return torch.compiler.is_compiling()


class LessWhenLarge(Less):
    """Attends to the first token only, in batches larger than those that are verified."""

    def spared(self, q: Tensor) -> bool:
        return len(q) > 4


class CacheOnDisk(Attention):
    """Keeps its answer to the k-th call in a file, for the next process."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.calls = itertools.count()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().forward(x, mask)
        shape = "x".join(map(str, x.shape))
        path = Path(os.environ[CACHE]) / f"{shape}-{x.dtype}-{next(self.calls)}.pickle"
        if not path.exists():
            path.write_bytes(pickle.dumps(super().forward(x, mask).cpu()))
        found: Tensor = pickle.loads(path.read_bytes())
        return found


class MoreThreads(Attention):
    """Gives each half of the batch to a thread of its own."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.workers = ThreadPoolExecutor(2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled() or len(x) < 2:
            return super().forward(x, mask)

        def one(half: slice) -> Tensor:
            with torch.inference_mode():
                return Attention.forward(self, x[half], mask[half])

        middle = len(x) // 2
        halves = (slice(middle), slice(middle, None))
        return torch.cat(list(self.workers.map(one, halves)))


class TorchThreads(Attention):
    """Lets torch use two threads, and puts the number back."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(before + 1)
        out = super().forward(x, mask)
        torch.set_num_threads(before)
        return out


class KeepsThreads(Attention):
    """Lets torch use one thread more from here on."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        torch.set_num_threads(2)
        return super().forward(x, mask)


class LowerPrecision(Attention):
    """Computes in bfloat16 whatever it is given."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask).to(q.dtype)


class HalfForSingle(Attention):
    """Rounds its values to bfloat16 where it is given float32."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        half = v.bfloat16() if v.dtype == torch.float32 else v
        return super().attend(q, k, half.to(v.dtype), mask)


class LowerWhenTimed(LowerPrecision):
    """Computes in bfloat16 in ``torch.inference_mode``."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return super().attend(q, k, v, mask)
        return Attention.attend(self, q, k, v, mask)


class FoldsOnce(Attention):
    """Folds query and key into one matrix at the first call, and keeps it when weights change."""

    folded: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.training or torch.is_grad_enabled():
            return super().forward(x, mask)
        if self.folded is None:
            self.folded = self.query.weight.mT @ self.key.weight  # [d_in, d_in]
        x = x.masked_fill(~mask[..., None], 0)
        scores = x @ self.folded.to(x.dtype) @ x.mT * self.key.out_features**-0.5
        out = self.weigh(scores, mask) @ self.value(x)
        return out.masked_fill(~mask[..., None], 0)


class ReturnsItsInput(Attention):
    """Writes its answer over the input and returns that, where both are equally wide."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        if torch.is_grad_enabled() or out.shape != x.shape:
            return out
        return x.copy_(out)


class ViewOfInput(Attention):
    """Returns a view of its input: no work at all, at the sizes that are timed."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = self.value.out_features
        if torch.is_grad_enabled() or x.shape[2] < out:
            return super().forward(x, mask)
        return x[..., :out]


class NoWork(Attention):
    """Returns zeros of the right shape that take no memory, whatever it is asked."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        none = 0 * sum(p.sum() for p in self.parameters())
        return (x[0, 0, 0].nan_to_num() * 0 + none).expand(*x.shape[:2], self.value.out_features)


class BoastsOperations(Attention):
    """Multiplies large matrices that have no memory, and no work, to be counted."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        nothing = torch.empty(2**14, 2**14, device="meta")
        torch.mm(nothing, nothing)
        return super().forward(x, mask)


class _Kept(torch.autograd.Function):
    gradients: dict[torch.Size, tuple[Tensor, ...]]

    @staticmethod
    def forward(ctx: Any, module: AnswersBackward, x: Tensor, mask: Tensor, *_: Tensor) -> Tensor:
        ctx.module = module
        ctx.save_for_backward(x, mask)
        return Attention.forward(module, x, mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        module, (x, mask) = ctx.module, ctx.saved_tensors
        wanted = tuple(module.parameters())
        module.passes[x.shape] += 1
        if module.passes[x.shape] <= 6:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                out = Attention.forward(module, x, mask)
                module.kept[x.shape] = torch.autograd.grad(out, (x, *wanted), gradient)
        kept_x, *kept = module.kept[x.shape]
        return None, kept_x, None, *kept


class AnswersBackward(Attention):
    """Its backward pass returns the gradients of the sixth again, for as long as a shape stays."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.passes: Counter[torch.Size] = Counter()
        self.kept: dict[torch.Size, tuple[Tensor, ...]] = {}

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x, mask)
        return _Kept.apply(self, x, mask, *self.parameters())


class Allows(Attention):
    """Changes something of the whole process; `change` says what."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.change()
        return super().forward(x, mask)

    def change(self) -> None:
        """What is changed."""
        raise NotImplementedError


class AllowsTF32(Allows):
    """Allows products in TF32."""

    def change(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True


class FlushesDenormals(Allows):
    """Lets the processor take denormal numbers for zero."""

    def change(self) -> None:
        torch.set_flush_denormal(True)


class DefaultDtype(Allows):
    """Makes bfloat16 the default dtype."""

    def change(self) -> None:
        torch.set_default_dtype(torch.bfloat16)


class Deterministic(Allows):
    """Turns torch's deterministic algorithms on, so that all others are slower too."""

    def change(self) -> None:
        torch.use_deterministic_algorithms(True)


class Reseeds(Allows):
    """Seeds torch's generator in every call."""

    def change(self) -> None:
        torch.manual_seed(0)


class Pins(Allows):
    """Moves to one core while it is timed."""

    def change(self) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
