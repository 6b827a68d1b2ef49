"""Epochs of gcn and sage with every derivative written out by hand, on dense matrices.

The method is PipeGCN (Wan et al., ICLR'22, algorithm 1 and section 3.4). They give losses and every parameter over
several epochs with a learning rate above 0: old rows and old gradients then differ from the new ones. Once dW was xᵀ t
with t = Aᵀ gy of old gradients wherever a layer did not widen its input. This is PipeGCN's (rows used)ᵀ gy for no delay
alone; a test with a learning rate of 0 could not distinguish them.
"""

import oracle
import pytest
import torch

from ..small import dense

EPOCHS, LR = 6, 0.05
# Of 5 features and 3 classes: layers that widen what they are given, keep its width and narrow it, with and without a
# kept aggregate of the features, which is exact under every schedule.
WIDTHS = {
    "5 to 4, 4 to 4, 4 to 3": {"hidden": 4, "keep_input": "never"},
    "5 to 7, 7 to 7, 7 to 3": {"hidden": 7, "keep_input": "never"},
    "5 to 2, 2 to 2, 2 to 3": {"hidden": 2, "keep_input": "never"},
    "kept, 7 to 7, 7 to 3": {"hidden": 7, "keep_input": "always"},
}


def pipegcn(graph, x, labels, train, parameters, kind, layers, kept, mask):
    """The loss, and the gradients put into parameters: gcn and sage with every derivative written out."""
    neighbour, own = {"gcn": ("linear", None), "sage": ("neighbour", "own")}[kind]

    def get(layer, name):
        return parameters[f"convs.{layer}.{name}"]

    h, known = x, []
    for layer in range(layers):
        weight = get(layer, f"{neighbour}.weight").detach()
        used = None
        if weight.shape[1] < weight.shape[0] and not (kept and layer == 0):
            y = graph.forwards(layer, h @ weight)  # products are what travels
        else:
            used = graph.whole @ h if kept and layer == 0 else graph.forwards(layer, h)
            y = used @ weight
        if own:
            y = y + h @ get(layer, "own.weight").detach()
        y = y + get(layer, f"{own or neighbour}.bias").detach()
        known.append((h, used, weight))
        h = torch.relu(y) * mask(layer + 1, y) if layer + 1 < layers else y
    value = oracle.loss(h, labels, train)
    error = torch.softmax(h, 1) - torch.nn.functional.one_hot(labels.clamp(min=0), h.shape[1])
    g = error * train[:, None] / train.sum()
    for layer in reversed(range(layers)):
        h, used, weight = known[layer]
        get(layer, f"{own or neighbour}.bias").grad = g.sum(0)
        if used is None:
            t = graph.backwards(layer, g)
            get(layer, f"{neighbour}.weight").grad, gh = h.T @ t, t @ weight.T
        else:
            get(layer, f"{neighbour}.weight").grad = used.T @ g
            gh = graph.backwards(layer, g @ weight.T) if layer else 0
        if own:
            get(layer, "own.weight").grad = h.T @ g
            gh = gh + g @ get(layer, "own.weight").detach().T
        g = gh * (h > 0) * mask(layer, h) if layer else None
    return float(value)


def check(emulation, graph, config, trainer):
    """Hold losses and parameters of a Trainer against the emulation by hand, epoch by epoch."""
    parameters = {n: p.detach().clone().requires_grad_() for n, p in trainer.model.named_parameters()}
    optimizer, kind, p = torch.optim.Adam(parameters.values(), lr=LR), config.model.model, config.model.dropout
    _, x, labels, train = dense(graph, kind)
    for epoch in range(EPOCHS):
        optimizer.zero_grad()

        def mask(layer, like):
            return oracle.dropout_mask(config.run.seed, epoch, layer, oracle.DROPOUT, *like.shape, p)

        kept = trainer.model.spec.keeps_input
        expected = pipegcn(emulation, x, labels, train, parameters, kind, config.model.layers, kept, mask)
        optimizer.step()
        assert trainer.step(epoch) == pytest.approx(expected, abs=1e-9), epoch
        for parameter, value in trainer.model.named_parameters():
            torch.testing.assert_close(
                value, parameters[parameter], rtol=0, atol=1e-8, msg=lambda text: f"{epoch} {parameter}: {text}"
            )
    trainer.schedule.halo.state()  # what is on its way arrives


def operator_of(graph, kind):
    return oracle.operator(dense(graph, kind)[0], {"gcn": "sym", "sage": "mean"}[kind])
