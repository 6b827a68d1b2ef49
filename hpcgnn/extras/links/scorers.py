"""How the embeddings of two nodes become a score: the choices of `--scorer`.

A scorer is called with rows of sources and of targets (m, F) and gives (m,), the higher the surer that there is an
edge. It is symmetric in both. `against` gives the scores (R, M) of all pairs of M sources and R targets.
"""

import torch
from torch import nn

from hpcgnn.nn.linear import Linear

# Numbers of the products of pairs that are made at a time.
_TILE = 1 << 18


class Dot(nn.Module):
    """Σ_f x_f y_f. width, dtype: of the embeddings."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()

    def weighted(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows (m, F) times the weight of each column."""
        return rows

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.weighted(source * target).sum(1)

    def against(self, sources: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(R, M) of sources (M, F) and target (R, F)."""
        return self.weighted(target) @ sources.T


class DistMult(Dot):
    """Σ_f w_f x_f y_f (Yang et al., ICLR'15), with one relation: it ignores types of edges."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__(width, dtype)
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))

    def weighted(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.weight


class Mlp(Dot):
    """w · relu(W (x ⊙ y) + b) + c, of as many hidden units as the embeddings have columns."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__(width, dtype)
        self.first, self.second = Linear(width, width, dtype=dtype), Linear(width, 1, dtype=dtype)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(source * target))).squeeze(1)

    def against(self, sources: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The same, some rows at a time."""
        count, width = sources.shape
        rows = [
            self(sources.repeat(len(some), 1), some.repeat_interleave(count, 0)).view(len(some), count)
            for some in target.split(max(1, _TILE // max(1, count * width)))
        ]
        return torch.cat(rows) if rows else target.new_zeros(0, count)


SCORERS: dict[str, type[Dot]] = {"dot": Dot, "distmult": DistMult, "mlp": Mlp}
