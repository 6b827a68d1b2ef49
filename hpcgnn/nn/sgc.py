"""Simplified graph convolution (Wu et al., ICML'19, eq. 8): y = (D^-1/2 A D^-1/2)^K x W + b, one linear layer after K
hops.
"""

import torch

from hpcgnn.memory.on_disk import OnDisk
from hpcgnn.nn.conv import Conv, Products
from hpcgnn.nn.entry import ModelEntry
from hpcgnn.nn.graph import DroppedRows, Graph
from hpcgnn.nn.linear import Linear
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.constants import ConstantRows
from hpcgnn.ops.draws import Purpose
from hpcgnn.traits import LayerTraits


class SGCConv(Conv):
    norm = "sym"
    traits = LayerTraits(
        self_loops="add",
        fixed_sums=True,
        constant_aggregate=True,
        input_rows="narrower",
        normalisation="sym",
        reads_self=False,
        input="product",
    )

    def __init__(self, d_in: int, d_out: int, hops: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(d_in, d_out)
        self.hops = hops
        self.linear = Linear(d_in, d_out, dtype=dtype)

    def gather(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.hops):
            x = graph.aggregate(x, self.norm)
        return x

    def combine(self, aggregate: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        return self.linear(aggregate)

    def products_of_constants(self, aggregate: torch.Tensor | OnDisk, x: torch.Tensor | OnDisk) -> Products:
        return [(aggregate, self.linear.weight, Purpose.DROPOUT_AGGREGATE)], self.linear.bias

    def transform_first(self, graph: Graph, x: torch.Tensor | DroppedRows | ConstantRows) -> torch.Tensor:
        assert self.linear.bias is not None, "nobody drops it"
        return self.gather(graph, x @ self.linear.weight).add_(self.linear.bias)


def _build(spec: ModelSpec) -> Model:
    return Model(spec, [SGCConv(spec.d_in, spec.classes, spec.layers, dtype=spec.dtype)], [])


MODEL = ModelEntry(_build, lambda spec: SGCConv, ("keep_input", "keep_input_dtype"), stacked=False)
