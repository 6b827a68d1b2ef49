"""What a schedule counts itself of an epoch that has several steps on parts of the rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from hpcgnn.estimate.counts.halo_counts import HaloCounts


class Arrangement(Protocol):
    """The nodes of a small copy, in clusters. cluster: int32 (n,); training_first: int64 (n,)."""

    cluster: torch.Tensor
    training_first: np.ndarray

    def draw_near(self, ends: np.ndarray, other: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """The sources of edges to `ends`, in place of `other`."""


class OwnSteps(Protocol):
    """The steps of an epoch (`count_steps` of a ScheduleEntry). least: training nodes that a copy needs."""

    least: int

    def halos(self, worthwhile: list[float], prunable: int) -> Mapping[Any, HaloCounts]:
        """{Place: HaloCounts} of the rows of all steps."""

    def uses(self, of_copy: Mapping[Any, Counter[Any]]) -> dict[Any, Counter[Any]]:
        """The uses of streams in all steps, from those in the steps of a copy."""

    def arranged(self, nodes: np.ndarray) -> Arrangement:
        """The nodes of a copy, in this order."""
