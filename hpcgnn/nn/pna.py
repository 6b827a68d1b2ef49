"""Principal neighbourhood aggregation (Corso et al., NeurIPS'20, eqs. 4 to 8), with neighbours' rows as messages:

y = W_s x + b + Σ_k s_k(d) · [mean | max | min | std] W_k,   s = 1, log(d + 1) / δ, δ / log(d + 1)

with d the in-degree and δ the mean of log(d + 1) over all nodes. All four come out of one stream of x, and the scalers
out of the products: F numbers for a halo row forwards, 2F backwards.
"""

import torch
from torch import nn

from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear

AGGREGATORS = ("mean", "max", "min", "std")


def _row(source: torch.Tensor) -> torch.Tensor:
    return source


class PNAConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out). Collective."""

    self_loops = "keep"

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.own = Linear(d_in, d_out, dtype=dtype)
        self.scaled = nn.ModuleList(Linear(len(AGGREGATORS) * d_in, d_out, bias=False, dtype=dtype) for _ in range(3))

    def drop_bias(self) -> None:
        """As that of nn.conv.Conv."""
        self.own.bias = None

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        aggregate, size = graph.propagate(_row, AGGREGATORS, x_src=x), torch.log1p(graph.in_degree)
        average = graph.constant("mean log degree", lambda: graph.total(size.sum()) / graph.num_nodes)
        relative = (size / average.clamp(min=1e-12)).to(aggregate.dtype).unsqueeze(1)
        plain, amplified, attenuated = (linear(aggregate) for linear in self.scaled)
        # A node without neighbours has nothing to scale: its aggregate is zero.
        return self.own(x) + plain + relative * amplified + attenuated / relative.masked_fill(relative == 0, 1)
