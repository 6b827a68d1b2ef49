"""Relational graph convolution (Schlichtkrull et al., ESWC'18, eqs. 2 and 3): y_i = Σ_r mean_j∈N_r(i) W_r x_j + W_0 x_i
+ b.

W_r = Σ_b a_rb V_b. A node itself has W_0. Self loops are added on request alone (`--self-loops add`), and are then one
relation more. W_R x_i then adds to W_0 x_i at the nodes without a loop in the file, and has a share in the bases.

Graphs with several types of nodes get a projection of their own for each type before the first layer. A type with only
zero features has an embedding by its bias.
"""

import itertools

import torch
from torch import nn

from hpcgnn.nn.entry import STACK, ModelEntry, handed_on, typed_projection
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Bounded, Glorot, Linear, glorot_bound
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.traits import LayerTraits


class RGCNConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out). Collective. num_types: relations R; num_bases: B, at most R."""

    traits = LayerTraits(input_rows="unprojected", edge_data="all", normalisation="relation", relational=True)

    def __init__(self, d_in: int, d_out: int, num_types: int, num_bases: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        num_bases = min(num_bases, max(1, num_types))
        self.coefficients = nn.Parameter(torch.zeros(num_types, num_bases, dtype=dtype))
        self.bases = nn.Parameter(torch.zeros(num_bases, d_in, d_out, dtype=dtype))
        self.own = Linear(d_in, d_out, dtype=dtype, start="glorot")

    def drop_bias(self) -> None:
        """See `Conv.drop_bias`."""
        self.own.bias = None

    def glorot(self) -> list[Glorot]:
        """Each basis by itself, and the coefficients so that W_r varies about as one basis does."""
        each = [(basis, self.d_in, self.d_out) for basis in self.bases.data]
        count = self.coefficients.shape[1]
        return [*each, (self.coefficients, count, count)]

    def as_pyg(self) -> list[Bounded]:
        """Each basis by itself, and the coefficients as a map from bases to relations."""
        each = [(basis, glorot_bound(*basis.shape)) for basis in self.bases.data]
        return [*each, (self.coefficients, glorot_bound(*self.coefficients.shape))]

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return graph.relate(x, self.coefficients, self.bases) + self.own(x)


def _build(spec: ModelSpec) -> Model:
    before, widths = typed_projection(spec), spec.widths
    if before is not None:
        widths = (spec.hidden, *widths[1:])
    relations = spec.edge_types + spec.loop_relation
    convs = [RGCNConv(a, b, relations, spec.bases, spec.dtype) for a, b in itertools.pairwise(widths)]
    return Model(spec, convs, handed_on(spec, widths), before=before)


MODEL = ModelEntry(_build, lambda spec: RGCNConv, (*STACK, "bases"))
