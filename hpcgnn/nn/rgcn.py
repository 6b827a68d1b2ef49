"""Relational graph convolution (Schlichtkrull et al., ESWC'18, eqs. 2 and 3): y_i = Σ_r mean_j∈N_r(i) W_r x_j + W_0 x_i
+ b.

W_r = Σ_b a_rb V_b. A node itself has W_0. Self loops are added on request alone (`--self-loops add`), and are then one
relation more. W_R x_i then adds to W_0 x_i at the nodes without a loop in the file, and has a share in the bases.

Graphs with several types of nodes get a projection of their own for each type before the first layer. A type with only
zero features has an embedding by its bias.

Relational graph attention (`RGATConv`): y_i = Σ_j α_ij W_r(ij) x_j + W_0 x_i + b, W_r = Σ_b a_rb V_b.

It follows Busbridge et al., 2019, with attention across relations, and bases as in Schlichtkrull et al., ESWC'18. α_ij
is the softmax per head over the in-edges of i, of all relations together, of LeakyReLU(a_dst·W_r x_i + a_src·W_r x_j).
Products with the bases are computed per node, and mixed by relation per edge. So a halo row costs B (F + H) numbers
forwards and 2B (F + H) backwards, for B bases, H heads and F = H × width, whatever the number of relations.

As in rgcn, a node itself has W_0, and requested self loops are one relation more.
"""

import itertools

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hpcgnn.kernels import RowScores
from hpcgnn.nn.entry import ATTENTION, STACK, Heads, ModelEntry, attentive, handed_on, typed_projection
from hpcgnn.nn.graph import Graph
from hpcgnn.nn.linear import Bounded, Linear, glorot_bound
from hpcgnn.nn.model import Model
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.ops.layer_input import Input
from hpcgnn.ops.product import products
from hpcgnn.traits import LayerTraits


class RGCNConv(nn.Module):
    """forward(graph, x (n_p, d_in)) -> (n_p, d_out). Collective. num_types: relations R; num_bases: B, at most R."""

    norm = "relation"
    traits = LayerTraits(edges=("weights", "types"))
    last_biases = ("own",)

    def __init__(self, d_in: int, d_out: int, num_types: int, num_bases: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        num_bases = min(num_bases, max(1, num_types))
        self.coefficients = nn.Parameter(torch.zeros(num_types, num_bases, dtype=dtype))
        self.bases = nn.Parameter(torch.zeros(num_bases, d_in, d_out, dtype=dtype))
        self.own = Linear(d_in, d_out, dtype=dtype, start="glorot")

    def initial_bounds(self) -> list[Bounded]:
        """Each basis by itself, and the coefficients as a map from bases to relations."""
        each = [(basis, glorot_bound(*basis.shape)) for basis in self.bases.data]
        return [*each, (self.coefficients, glorot_bound(*self.coefficients.shape))]

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return graph.relate(x, self.coefficients, self.bases, *self.own.map)


def _rgcn(layer: type[RGCNConv], spec: ModelSpec) -> Model:
    before, widths = typed_projection(spec), spec.widths
    if before is not None:
        widths = (spec.options.hidden, *widths[1:])
    relations = spec.edge_types + spec.loop_relation
    convs = [layer(a, b, relations, spec.options.bases, spec.dtype) for a, b in itertools.pairwise(widths)]
    return Model(spec, convs, handed_on(spec, widths), before=before)


MODEL = ModelEntry(lambda spec: RGCNConv, (*STACK, "bases"), _rgcn)


class RGATConv(Heads):
    """spec: ModelSpec, also for the relations (edge_types and loop_relation) and bases."""

    traits = LayerTraits(neighbours="products", edges=("types",))
    last_biases = ("own",)

    def add_weights(self, spec: ModelSpec) -> None:
        d_in, heads, width = self.d_in, self.heads, self.width
        relations = spec.edge_types + spec.loop_relation
        self.num_bases = min(spec.options.bases, max(1, relations))
        self.coefficients = nn.Parameter(torch.zeros(relations, self.num_bases, dtype=spec.dtype))
        self.bases = nn.Parameter(torch.zeros(self.num_bases, d_in, heads * width, dtype=spec.dtype))
        self.att_src = nn.Parameter(torch.zeros(heads, width, dtype=spec.dtype))
        self.att_dst = nn.Parameter(torch.zeros(heads, width, dtype=spec.dtype))
        self.own = Linear(d_in, self.d_out, dtype=spec.dtype, start="glorot")

    def initial_bounds(self) -> list[Bounded]:
        """Each basis by itself, the coefficients as a map from bases to relations, and the attention vectors as those
        of gat. PyG's layer has other vectors, which are matrices.
        """
        each = [(basis, glorot_bound(*basis.shape)) for basis in self.bases.data]
        return [*each, (self.coefficients, glorot_bound(*self.coefficients.shape)), *super().initial_bounds()]

    @property
    def vectors(self) -> list[nn.Parameter]:
        return [self.att_src, self.att_dst]

    def message(
        self, source: torch.Tensor, target: torch.Tensor, relation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logits (E, H), values (E, F)) of edges. relation: integers (E, 1)."""
        mixed = self.coefficients[relation[:, 0].long()].unsqueeze(1)
        value, half = source.split([source.shape[1] - target.shape[1], target.shape[1]], 1)
        logit = mixed @ (half + target).unflatten(1, (self.num_bases, self.heads))
        value = mixed @ value.unflatten(1, (self.num_bases, self.heads * self.width))
        return leaky_relu(logit.squeeze(1), self.slope), value.squeeze(1)

    def forward(self, graph: Graph, x: Input) -> torch.Tensor:
        relation = graph.stored_edge_type
        assert relation is not None, "refused where the model was built"
        # a·(x V) = x (V a), as in gat.py.
        per_head = self.bases.unflatten(2, (self.heads, self.width))
        parts = [self.bases, *((per_head * vector).sum(-1) for vector in (self.att_src, self.att_dst))]
        of_values, of_source, of_target = (part.transpose(0, 1).flatten(1) for part in parts)
        source_map = torch.cat([of_values, of_source], 1), None
        own, source, target = products(x, self.own.map, source_map, (of_target, None))
        y = graph.propagate(
            self.message,
            "softmax",
            x_src=source,
            x_dst=target,
            edge=relation.unsqueeze(1),
            dropout=self.p,
            layer=self.layer,
            scores=RowScores(self.heads, slope=self.slope, weight=self.coefficients, edge=relation, mixed=True),
        )
        return own.add_(self.joined(y))


RGAT = ModelEntry(lambda spec: RGATConv, (*ATTENTION, "bases"), attentive)
