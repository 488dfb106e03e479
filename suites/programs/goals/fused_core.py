"""MTSA's core by the fused kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reference_impls.kernels import core
from reference_impls.kernels.geometry import GeometryByLength
from suites.programs.goals.cores import CoreLayer


class FusedCore(CoreLayer):
    """`CoreLayer` by `reference_impls.kernels.core.attend`.

    Parameters
    ----------
    backend : str
        As that function takes it; "auto" chooses.
    """

    def __init__(self, d_in: int, d_out: int, *, backend: str = "auto", **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = backend
        self._geometries = GeometryByLength(self.masks)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, see `TensorizedLayer.attend`."""
        geometry = self._geometries.of(q.shape[2], q.device)
        return core.attend(q, k, v, s, geometry, mask, self.scale_t, None, backend=self.backend)
