"""Principal neighbourhood aggregation (Corso et al., NeurIPS'20, eqs. 4 to 8), with neighbours' rows as messages:

y = W_s x + b + Σ_k s_k(d) · [mean | max | min | std] W_k,   s = 1, log(d + 1) / δ, δ / log(d + 1)

If the graph has edge features, a message is x_j + W_e e_ij. d is the in-degree and δ the mean of log(d + 1) over all
nodes, by all edges. All four come out of one stream of x, and the scalers out of the products. A halo row costs F
numbers forwards, 2F backwards.
"""

import torch
from torch import nn

from hpcgnn.nn.entry import STACK, ModelEntry
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.ops.edge_rules import RowMessages
from hpcgnn.traits import LayerTraits

#: In the order of their columns.
MOMENTS = ("mean", "max", "min", "std")


class PNAConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out). Collective. edge_features: columns that edges have, or 0."""

    traits = LayerTraits(edges=("features",))
    last_biases = ("own",)

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None, edge_features: int = 0) -> None:
        super().__init__()
        self.edge = Linear(edge_features, d_in, bias=False, dtype=dtype) if edge_features else None
        wide = len(MOMENTS) * d_in
        summed = d_in + 3 * wide  # PyG has one map of all of these
        self.own = Linear(d_in, d_out, dtype=dtype, fan_in=summed)
        self.scaled = nn.ModuleList(Linear(wide, d_out, False, dtype, fan_in=summed) for _ in range(3))

    def message(self, source: torch.Tensor, edge: torch.Tensor | None = None) -> torch.Tensor:
        """(E, d_in) of edges."""
        return source if self.edge is None or edge is None else source + self.edge(edge)

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        edge = None if self.edge is None else graph.edge_features
        how = RowMessages(None if self.edge is None else self.edge.weight)
        aggregate = graph.propagate(self.message, MOMENTS, x_src=x, edge=edge, scores=how)
        average = graph.constant("mean log degree", lambda: graph.total(_size(graph).sum()) / graph.num_nodes)
        relative = (_size(graph) / average.clamp(min=1e-12)).to(aggregate.dtype).unsqueeze(1)
        plain, amplified, attenuated = (linear(aggregate) for linear in self.scaled)
        # A node without neighbours has nothing to scale: its aggregate is zero.
        return self.own(x) + plain + relative * amplified + attenuated / relative.masked_fill(relative == 0, 1)


def _size(graph: Graph) -> torch.Tensor:
    """log(d + 1) of own nodes: float64 (n_p,)."""
    return torch.log1p(graph.in_degree)


MODEL = ModelEntry(lambda spec: PNAConv, STACK)
