"""The compiled kernels of attention by whole rows (native/scores.c)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .functions import EdgeRule


class NativeScores:
    """Kernels of `scores.py`, compiled."""

    attend: Callable[..., Any]

    def attend_scores(
        self,
        function: str,
        sums: Tensor,
        indptr: Tensor,
        tensors: dict[str, Tensor | None],
        heads: int,
        slope: float,
        rule: EdgeRule | None,
        kind: int,
    ) -> None:
        self.attend(function, sums, indptr, tensors, heads, slope, rule, score=kind)
