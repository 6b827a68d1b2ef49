"""A stack of convolutions, and the registry of models that `--model` offers."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.gin import GINConv
from hpcgnn.nn.norm import NORM_LAYERS
from hpcgnn.nn.sage import SAGEConv
from hpcgnn.nn.sgc import SGCConv
from hpcgnn.ops.randomness import Purpose


@dataclass(frozen=True)
class ModelSpec:
    """All that decides a model's parameters and arithmetic; stored in checkpoints and compared on resume.

    input_dropout: 'aggregate' drops elements of the kept aggregate, 'raw' of the features (at the price of one exchange
    per epoch where they are dense), 'none' drops nothing there.
    """

    model: str
    d_in: int
    classes: int
    layers: int
    hidden: int
    dropout: float = 0.0
    norm: str = "none"
    residual: bool = False
    input_dropout: str = "aggregate"
    keep_input: str = "auto"
    sparse_input: bool = False
    heads: int = 1
    out_heads: int = 1
    attention_dropout: float = 0.0
    slope: float = 0.2
    dtype: torch.dtype = torch.float32

    @property
    def widths(self):
        """Input and output widths of the layers: (d_in, hidden, …, classes)."""
        return (self.d_in, *[self.hidden] * (self.layers - 1), self.classes)

    @property
    def keeps_input(self):
        """Whether the features are aggregated once and the result is kept for the whole run.

        It pays where they are dense and not much wider than the first layer's output; else they are transformed first.
        """
        if self.sparse_input or self.input_dropout == "raw" or not MODELS[self.model].linear:
            return False
        first_out = self.classes if self.model == "sgc" else self.widths[1]
        return self.keep_input == "always" or (self.keep_input == "auto" and self.d_in <= 2 * first_out)


class Model(nn.Module):
    """convolution → norm → activation → dropout, L times; the last layer is a convolution alone.

    forward(graph) -> logits (n_p, C) of own nodes. Collective.

    Dropout is applied to the input of every layer. With `residual` every hidden layer but the first, whose input is
    of another width, adds its input (before dropout) to its output.
    """

    def __init__(self, spec, convs, activation=torch.relu_):
        super().__init__()
        # In place: what it acts on, the output of a convolution or a norm, is not needed again for the gradient.
        self.spec, self._activation = spec, activation
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(NORM_LAYERS[spec.norm](conv.d_out, dtype=spec.dtype) for conv in convs[:-1])

    def forward(self, graph):
        h, before = self._input_layer(graph), None
        for layer, (conv, norm) in enumerate(zip(self.convs[1:], self.norms), start=1):
            x = self._activation(norm(graph, h))
            if self.spec.residual and before is not None:
                x = x + before
            before = x
            h = conv(graph, graph.dropout(x, self._p, layer))
        return h

    def _input_layer(self, graph):
        """The first convolution, whose input never changes: nothing is exchanged for it after the first step if it pays."""
        conv, x = self.convs[0], graph.features
        p = 0.0 if self.spec.input_dropout == "none" else self._p
        if not self.spec.keeps_input:
            return conv(graph, graph.dropout(x, p, 0))
        aggregate = graph.constant("input aggregate", lambda: conv.gather(graph, x))
        return conv.combine(
            graph.dropout(aggregate, p, 0, Purpose.DROPOUT_AGGREGATE),
            graph.dropout(x, p, 0) if conv.uses_self else None,
        )

    @property
    def _p(self):
        return self.spec.dropout if self.training else 0.0


def _stacked(conv_class):
    def build(spec):
        widths = spec.widths
        return Model(spec, [conv_class(a, b, dtype=spec.dtype) for a, b in zip(widths[:-1], widths[1:])])

    return build


def _build_sgc(spec):
    return Model(spec, [SGCConv(spec.d_in, spec.classes, spec.layers, dtype=spec.dtype)])


def _build_gat(spec):
    """Hidden layers concatenate `heads` heads of `hidden` columns; the last averages `out_heads` heads as wide as the classes."""
    convs, d_in = [], spec.d_in
    for layer in range(spec.layers):
        last = layer == spec.layers - 1
        width, heads = (spec.classes, spec.out_heads) if last else (spec.hidden, spec.heads)
        convs.append(
            GATConv(d_in, width, heads, last and heads > 1, spec.slope, spec.attention_dropout, layer, spec.dtype)
        )
        d_in = convs[-1].d_out
    return Model(spec, convs, activation=partial(torch.nn.functional.elu, inplace=True))


@dataclass(frozen=True)
class Entry:
    """A model on offer. build(spec) -> Model; self_loops: what the model wants of the graph, 'add' or 'keep'.

    linear: its first aggregation is linear in the features, so that of constant features can be kept.
    """

    build: callable
    self_loops: str
    linear: bool = True


MODELS = {
    "gcn": Entry(_stacked(GCNConv), GCNConv.self_loops),
    "sage": Entry(_stacked(SAGEConv), SAGEConv.self_loops),
    "gin": Entry(_stacked(GINConv), GINConv.self_loops),
    "sgc": Entry(_build_sgc, SGCConv.self_loops),
    "gat": Entry(_build_gat, GATConv.self_loops, linear=False),
}

