"""What a model keeps for its backward pass and what it needs on the way, from its specification alone: no tensor is made.

A step is told as the tensors that come into being and go, in the order in which autograd makes and frees them: every
tensor has one row for each own node, so sizes are counted in columns (numbers per node). Reading the telling beside the
layer that it tells of is how it is checked; that it agrees with the kernel's high-water marks is tested.
"""

from dataclasses import dataclass

from hpcgnn.nn.spec import ModelSpec


class Columns:
    """Columns alive now, and the most that were since `mark()`."""

    def __init__(self):
        self.now = self.most = 0.0

    def mark(self):
        """Forget the most."""
        self.most = self.now

    def make(self, *widths):
        """Tensors come into being."""
        self.now += sum(widths)
        self.most = max(self.most, self.now)

    def free(self, *widths):
        """Tensors go."""
        self.now -= sum(widths)

    def pass_by(self, *widths):
        """Tensors come, one after another, and all go."""
        self.make(*widths)
        self.free(*widths)


@dataclass(frozen=True)
class Footprint:
    """Columns per own node. kept: alive between the passes; forward, backward, evaluation: the most alive in each, with
    what is kept.
    """

    kept: float
    forward: float
    backward: float
    evaluation: float


@dataclass(frozen=True)
class _Input:
    """The input of a convolution. width; made: whether it is a tensor of this step, which goes if nothing keeps it.

    gradient: whether its gradient is wanted. aggregated: whether it is a kept aggregate, so that nothing is gathered.
    sparse: whether it is sparse, and therefore transformed before it is aggregated.
    """

    width: int
    made: bool
    gradient: bool = True
    aggregated: bool = False
    sparse: bool = False


class _Linear:
    """A convolution that aggregates linearly: gcn, sgc, sage. uses_self: it multiplies its input as well (sage)."""

    def __init__(self, d_in, d_out, uses_self):
        self.i, self.o, self.uses_self = d_in, d_out, uses_self

    def transforms_first(self, x):
        """Whether rows of the output's width are aggregated."""
        return self.o < self.i or x.sparse

    def forward(self, live, x, training):
        """Make the output, width o; x is alive before and, if it was made and nothing keeps it, gone after."""
        self.keeps_input = training
        if x.aggregated:
            own = self.i if self.uses_self and x.made else 0  # the features themselves, dropped out
            live.make(own)
            live.make(*[self.o] * (1 + self.uses_self))
            live.free(*[self.o] * self.uses_self)
            self.kept = (self.i if x.made else 0) + own if training else 0
            live.free((self.i if x.made else 0) + own - self.kept)
        elif self.transforms_first(x):
            live.make(*[self.o] * (2 + self.uses_self))
            live.free(*[self.o] * (1 + self.uses_self))
            self.kept = self.i if training and x.made else 0
            live.free(self.i - self.kept if x.made else 0)
        else:
            live.make(self.i)
            live.make(*[self.o] * (1 + self.uses_self))
            live.free(*[self.o] * self.uses_self)
            self.keeps_input = training and self.uses_self
            self.kept = (self.i + (self.i if self.uses_self and x.made else 0)) if training else 0
            live.free(self.i + (self.i if x.made else 0) - self.kept)

    def backward(self, live, x):
        """The gradient of the output, width o, is alive before; after it that of the input, and what was kept is gone."""
        if not x.gradient:
            if not x.aggregated and self.transforms_first(x):
                live.pass_by(self.o)
            live.free(self.o, self.kept)
        elif self.o < self.i:  # gy along the edges, and its product; then that of gy itself, which is added in place
            live.make(self.o)
            live.free(*[self.o] * (not self.uses_self))
            live.make(self.i)
            live.free(self.o)
            live.make(*[self.i] * self.uses_self)
            live.free(self.kept, *[self.o, self.i] * self.uses_self)
        else:
            live.make(self.i)  # the aggregate's gradient
            live.free(self.i)  # … and the aggregate
            self.kept -= self.i
            live.make(*[self.i] * self.uses_self)
            live.free(self.o, self.kept)
            live.make(self.i)
            live.free(self.i, *[self.i] * self.uses_self)


class _Attention:
    """Graph attention: keeps its input, [z | a_src | a_dst], y and the log-sum-exp."""

    def __init__(self, d_in, width, heads, average):
        self.i, self.f, self.h = d_in, width * heads, heads
        self.o, self.average = width if average else width * heads, average

    def forward(self, live, x, training):
        self.keeps_input = training
        projected = self.f + 2 * self.h
        live.make(projected)
        live.make(self.f, 3 * self.h)  # y, maximum, denominator, a_dst
        live.make(self.h)
        live.free(3 * self.h)
        live.make(self.o if self.average else 0)
        made, inner = self.i if x.made else 0, self.h + (self.f if self.average else 0)
        live.free(0 if training else inner)  # nobody keeps the log-sum-exp, nor what was averaged
        live.make(self.o)  # with the bias
        live.free(self.o if self.average else 0)
        self.kept = made + projected + self.f + self.h if training else 0
        live.free(0 if training else made + projected + self.f + self.h - inner)

    def backward(self, live, x):
        sent = self.o + 3 * self.h
        live.make(self.o if self.average else 0)  # divided by the heads
        live.pass_by(self.f)  # gy · y before it is summed
        live.make(self.h, sent, self.f + 2 * self.h, self.h)
        live.free(sent, 2 * self.h, self.o, self.o if self.average else 0)
        kept_input = self.i if x.made else 0
        live.free(self.kept - kept_input)
        live.make(self.i if x.gradient else 0)
        live.free(self.f + 2 * self.h, kept_input)


def _convolutions(spec):
    if spec.model == "gat":
        convs, width = [], spec.d_in
        for layer in range(spec.layers):
            last = layer == spec.layers - 1
            columns, heads = (spec.classes, spec.out_heads) if last else (spec.hidden, spec.heads)
            convs.append(_Attention(width, columns, heads, last and heads > 1))
            width = convs[-1].o
        return convs
    if spec.model == "sgc":
        return [_Linear(spec.d_in, spec.classes, False)]
    return [_Linear(i, o, spec.model == "sage") for i, o in zip(spec.widths[:-1], spec.widths[1:])]


TOLD = ("gcn", "sage", "sgc", "gat")


def footprint(spec: ModelSpec, train_share: float) -> Footprint | None:
    """The Footprint of a step and of an evaluation; None for what is not told here: other models, aggregators, edge
    terms, and normalisation.

    train_share: training nodes per own node (the loss is taken of those rows alone).
    """
    variant = (
        spec.norm,
        spec.aggregator if spec.model == "sage" else "mean",
        spec.edge_term if spec.model == "gat" else "none",
    )
    if spec.model not in TOLD or variant != ("none", "mean", "none"):
        return None
    live = Columns()
    convs, inputs = _run_forward(spec, live, True)
    loss = train_share * spec.classes
    live.make(loss)  # the logits of training nodes, then their log-softmax
    live.make(loss)
    live.free(loss, spec.classes)
    kept, forward = live.now, live.most
    live.mark()
    _run_backward(spec, live, convs, inputs, loss)
    backward = live.most
    assert abs(live.now) < 1e-9, "every tensor that was made has gone"
    evaluated = Columns()
    _run_forward(spec, evaluated, False)
    return Footprint(kept, forward, backward, evaluated.most)


def _run_forward(spec, live, training):
    """Model.forward. Afterwards the logits are alive, and what is kept. Returns (convolutions, their inputs)."""
    convs, inputs = _convolutions(spec), []
    drops, held = training and spec.dropout > 0, 0
    for layer, conv in enumerate(convs):
        summed = conv.i if spec.residual and layer > 1 else 0
        if layer == 0:
            made = drops and spec.input_dropout != "none" and not spec.sparse_input
            x = _Input(conv.i, made, False, spec.keeps_input, spec.sparse_input)
        else:  # the activation is in place; the residual sum and dropout make tensors of their own
            live.make(summed)
            live.free(held)
            x = _Input(conv.i, bool(drops or summed))
        live.make(conv.i if x.made and (drops or layer == 0) else 0)
        conv.forward(live, x, training)
        # The sum stays for the next layer's, whether or not dropout came between it and the convolution.
        held = summed if drops or not conv.keeps_input else 0
        live.make(held if not drops else 0)
        if not training and layer > 0:
            live.free(conv.i)
        inputs.append(x)
    live.free(held)
    return convs, inputs


def _run_backward(spec, live, convs, inputs, loss):
    """From the loss to the first layer's parameters; afterwards nothing is alive."""
    live.make(loss)
    live.make(loss)
    live.free(loss, loss)  # the log-softmax has gone, too
    live.make(spec.classes)
    live.free(loss)
    pending = 0
    for layer in reversed(range(len(convs))):
        conv, x = convs[layer], inputs[layer]
        conv.backward(live, x)
        if not x.gradient:
            continue
        if spec.dropout > 0:  # the mask is drawn again
            live.pass_by(conv.i)
        live.free(pending)  # what came past the layers above is added in place
        live.make(conv.i)  # of the activation, which kept its result
        pending = conv.i if spec.residual and layer > 1 else 0
        live.free(conv.i, conv.i - pending)
