"""The softmax reducer: y_i = Σ_e softmax(logit)_e value_e per head, formed online as in ops/additive_attention.py.

Kept per row: y, the maximum m and the inverse of the denominator s, and in the backward pass D = <gy, y>. With
α_e = exp(logit_e − m_i) / s_i, dropout m̃_e of α: g_value = m̃ α gy_i,  g_logit = α (<gy_i, m̃ value_e> − D_i).

Where one edge outweighs the others y_i is m̃ value_e to the bit, and that difference exactly 0, however large both are.
"""

import torch

from hpcgnn import kernels
from hpcgnn.graph.edge_tiles import EdgeTile
from hpcgnn.ops.reducers import sum_segments

#: (logits (E, H), values (E, F)).
Pair = tuple[torch.Tensor, torch.Tensor]


class Softmax:
    """Messages (logit (E, H), value (E, F)) with F = H × width -> y (n, F).

    key, p: dropout of the coefficients, by edge and head; the denominator is that before dropout.
    """

    def __init__(self, rows: int, message: Pair, key: int = 0, p: float = 0.0) -> None:
        logit, value = message
        self.heads, self.key, self.p = logit.shape[1], key, p
        self.y = value.new_zeros(rows, value.shape[1])
        self.top = logit.new_full((rows, self.heads), -torch.inf)
        self.total = logit.new_zeros(rows, self.heads)

    def add(self, tile: EdgeTile, message: Pair) -> None:
        """Take in the messages of a tile."""
        logit, value = message
        # Rows one after the other are changed where they are. Each copy would be a parallel region more.
        rows = tile.consecutive or tile.rows.long()
        before = self.top[rows].clone()
        top = self.top[rows]
        kernels.gather_largest(top, torch.zeros_like(top), logit.contiguous(), tile.indptr, tile.each)
        shrink = torch.where(before == -torch.inf, 0.0, (before - top).exp_())
        weight = (logit - top[tile.segment]).exp_()
        total = self.total[rows].mul_(shrink).add_(sum_segments(tile, weight))
        y = self.y[rows]
        y = self._by_head(y, shrink, out=y)
        if tile.consecutive is None:  # else views of the sums were changed
            self.top[rows], self.total[rows], self.y[rows] = top, total, y
        sum_segments(tile, self._by_head(value, self._dropped(tile, weight)), self.y)

    def finish(self) -> torch.Tensor:
        """y (n, F), after the last tile; the reducer does not keep it."""
        y, top, total = (self.__dict__.pop(name) for name in ("y", "top", "total"))
        empty = total == 0
        self.top, self.share = top, total.reciprocal_().masked_fill_(empty, 0)
        return self._by_head(y, self.share)

    def prepare(self, gy: torch.Tensor, y: torch.Tensor) -> None:
        """Take y and its gradient, before the first tile of the backward pass."""
        product = (gy * y).unflatten(1, (self.heads, -1)).sum(-1)
        # Side by side: the rows of a tile's edges are then picked in one parallel region, not in three.
        self.gy, self.by_row = gy, torch.cat([self.top, self.share, product], 1)
        self.top, self.share, _ = self.by_row.chunk(3, 1)  # nothing is kept twice

    def gradient(self, tile: EdgeTile, message: Pair) -> Pair:
        """The gradients of a tile's logits and values."""
        logit, value = message
        top, share, product = self.by_row[tile.owner].chunk(3, 1)
        alpha = (logit - top).exp_().mul_(share)
        gy, kept = self.gy[tile.owner], alpha
        if self.p:
            mask = self._dropped(tile, torch.ones_like(alpha))
            value, kept = self._by_head(value, mask), alpha * mask
        along = (gy * value).unflatten(1, (self.heads, -1)).sum(-1)
        return alpha * along.sub_(product), self._by_head(gy, kept, out=gy)

    def _dropped(self, tile: EdgeTile, weight: torch.Tensor) -> torch.Tensor:
        if self.p == 0:
            return weight
        out = torch.empty_like(weight)
        kernels.dropout(out, weight, tile.edge_ids, self.key, self.p)
        return out

    def _by_head(self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """values (E, F) times the factors (E, H) of their heads, or written over `out`, which may be values itself."""
        heads = None if out is None else out.unflatten(1, (self.heads, -1))
        return torch.mul(values.unflatten(1, (self.heads, -1)), factor.unsqueeze(2), out=heads).flatten(1)
