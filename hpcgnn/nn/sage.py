"""GraphSAGE (Hamilton et al., NIPS'17).

* Mean aggregator (algorithm 1): y = W_n · mean of in-neighbours + W_s x + b.
* Max aggregators (eq. 3): y = W_n · max_j (…) + W_s x + b. `SAGEMaxConv` takes the largest of the neighbours' rows as
  they are, `SAGEPoolConv`, the paper's, of relu(W_p x_j + b_p). A maximum does not commute with W_n, so the input side
  always travels.
"""

from dataclasses import replace

import torch

from hpcgnn.nn.conv import Conv, LinearConv, Weights
from hpcgnn.nn.entry import LINEAR, ModelEntry, stacked
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.ops.layer_input import Input
from hpcgnn.traits import LayerTraits


class _TwoMaps(Conv):
    """A map of the aggregate, and one of the own row, which has the bias."""

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.neighbour = Linear(d_in, d_out, bias=False, dtype=dtype)
        self.own = Linear(d_in, d_out, dtype=dtype)

    def drop_bias(self) -> None:
        self.own.bias = None


class SAGEConv(_TwoMaps, LinearConv):
    norm = "mean"
    traits = replace(LinearConv.traits, reads_self=True)

    def weights(self) -> Weights:
        return self.neighbour.weight, self.own.weight, self.own.bias


class SAGEMaxConv(_TwoMaps):
    traits = LayerTraits(neighbours="fixed", edges=())

    def gather(self, graph: Graph, x: Input) -> torch.Tensor:
        return graph.largest(x)

    def combine(self, aggregate: torch.Tensor, x: Input | None) -> torch.Tensor:
        return torch.addmm(self.own(x), aggregate, self.neighbour.weight)

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        return self.combine(self.gather(graph, x), x)


class SAGEPoolConv(SAGEMaxConv):
    traits = LayerTraits(neighbours="products", edges=(), input="product")

    def __init__(self, d_in: int, d_out: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out, dtype)
        self.pool = Linear(d_in, d_out, dtype=dtype)
        self.neighbour = Linear(d_out, d_out, bias=False, dtype=dtype)

    def gather(self, graph: Graph, x: Input) -> torch.Tensor:
        return graph.largest(torch.relu(self.pool(x)))


# By `--aggregator`.
LAYERS = {"mean": SAGEConv, "max": SAGEMaxConv, "pool": SAGEPoolConv}
MODEL = ModelEntry(
    lambda spec: stacked(LAYERS[spec.aggregator])(spec),
    lambda spec: LAYERS[spec.aggregator],
    (*LINEAR, "aggregator"),
    weights_remedy="--aggregator mean",
)
