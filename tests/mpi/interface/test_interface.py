"""A training loop of a script's own, on the graph that `hpcgnn.load` gives: its curve equals `hpcgnn train`'s.

This holds on any number of ranks, and differences between ranks that must agree are detected.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.storage import SPLITS, GraphFile
from hpcgnn.interface.load import load_graph
from hpcgnn.nn.gat import GATConv
from hpcgnn.nn.gcn import GCNConv
from hpcgnn.nn.norm import BatchNorm
from hpcgnn.nn.sage import SAGEConv

from ..training import CHOICES, CLASSES, FEATURES, build_trainer, configure, generated

pytestmark = pytest.mark.ranks(2)

HIDDEN, EPOCHS = 16, 5


LAYERS = {"gcn": GCNConv, "sage": SAGEConv}


class Script(torch.nn.Module):
    """A model as a user writes it."""

    def __init__(self, kind, dtype, dropout, norm):
        super().__init__()
        widths = (FEATURES, HIDDEN, HIDDEN, CLASSES)
        self.convs = torch.nn.ModuleList(LAYERS[kind](a, b, dtype) for a, b in zip(widths, widths[1:]))
        self.norms = torch.nn.ModuleList(BatchNorm(HIDDEN, dtype=dtype) if norm else torch.nn.Identity() for _ in "12")
        self.dropout, self.norm = dropout, norm
        if norm:
            for conv in self.convs[:-1]:
                conv.get_submodule(conv.last_biases[0]).bias = None

    def forward(self, graph):
        x = graph.features
        for layer, conv in enumerate(self.convs):
            if layer:
                x = torch.relu(self.norms[layer - 1](graph, x) if self.norm else x)
            x = conv(graph, graph.dropout(x, self.dropout if self.training else 0.0, layer))
        return x


def loaded(comm, path, map_name="metis", stated=True, **options):
    config = make_config({"graph": str(path), "partition": map_name, "seed": 5, **options}, CHOICES)
    return load_graph(comm, config, stated, **{"widest": 64})


def train_by_script(graph, kind, dtype, dropout, norm, weight_decay=5e-4):
    torch.manual_seed(5)
    model = graph.initialise(Script(kind, dtype, dropout, norm))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=weight_decay)
    losses, scores = [], []
    for _ in graph.epochs(EPOCHS):
        optimizer.zero_grad()
        loss = graph.loss(model(graph))
        loss.backward()
        graph.sync_gradients(model)
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            scores.append(graph.scores(model(graph)))
        model.train()
    return np.array(losses), scores


@pytest.mark.pairs
@pytest.mark.parametrize("kind", ["gcn", "sage"])
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_curve_is_that_of_hpcgnn_train(comm, paths, kind, precision):
    name = "undirected" if (kind == "gcn") == (precision == "fp32") else "directed multi-label"
    norm = (kind, name) == ("sage", "undirected")
    dropout, dtype = (0.5, torch.float32) if precision == "fp32" else (0.0, torch.float64)
    options = {"dropout": dropout, "input_dropout": "raw", "precision": precision, "norm": "batch" if norm else "none"}
    usual = {"weight_decay": 5e-4, "lr": 0.01, "hidden": HIDDEN, "keep_input": "never"}
    config = configure(paths[name], model=kind, **usual, **options)
    trainer = build_trainer(comm, config, None) if comm.rank == 0 else None  # on one rank alone
    expected, scores = [], []
    for epoch in range(EPOCHS if trainer else 0):
        expected.append(trainer.step(epoch))
        scores.append(trainer.evaluate())
    expected, scores = comm.broadcast_object((np.array(expected), scores))
    halo_buffer = 0.05  # so small that there are several rounds
    self_loops = "add" if kind == "gcn" else "keep"
    map_name = "metis" if precision == "fp32" else "random-clusters"
    graph = loaded(comm, paths[name], map_name, precision=precision, self_loops=self_loops, halo_buffer=halo_buffer)
    found, found_scores = train_by_script(graph, kind, dtype, dropout, norm)
    assert expected[-1] < expected[0], "the model must learn, or the comparison says little"
    tolerance = {"rtol": 1e-4, "atol": 1e-4 * expected[0]} if precision == "fp32" else {"rtol": 0, "atol": 1e-9}
    np.testing.assert_allclose(found, expected, **tolerance)
    for split in ("train", "val", "test") if precision == "fp64" else ():
        assert [one[split] for one in found_scores] == pytest.approx([one[split] for one in scores], abs=1e-9)
    assert graph._loaded.buffers.nbytes <= halo_buffer * 2**20
    assert len(set(comm.allgather_object(found.tobytes()))) == 1, "all ranks see one loss"


def test_a_loss_of_ones_own_is_the_mean_over_all_ranks(comm, paths):
    graph = loaded(comm, paths["undirected"], self_loops="keep")
    model = graph.initialise(SAGEConv(FEATURES, CLASSES))
    mask, gradients = graph.train_mask, []
    for loss in (graph.loss, lambda y: graph.mean(F.cross_entropy(y[mask], graph.labels[mask], reduction="none"))):
        model.zero_grad()
        value = loss(model(graph, graph.features))
        value.backward()
        graph.sync_gradients(model)
        gradients.append([value.item(), *(parameter.grad.clone() for parameter in model.parameters())])
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert graph.train_mask.sum() + graph.val_mask.sum() + graph.test_mask.sum() <= len(graph.ids)
    assert comm.total(torch.tensor([len(graph.ids)])) == graph.num_nodes


def test_gradients_that_are_missing_on_a_rank(comm, paths):
    graph = loaded(comm, paths["undirected"])
    everywhere, here, nowhere = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    everywhere.grad = torch.full((2,), float(comm.rank))
    if comm.rank == comm.size - 1:
        here.grad = torch.tensor([1.0, 2.0])
    graph.sync_gradients([everywhere, here, nowhere])
    assert everywhere.grad.tolist() == [sum(range(comm.size))] * 2
    assert here.grad.tolist() == [1.0, 2.0] and nowhere.grad is None


def test_ranks_begin_with_the_same_parameters(comm, paths):
    graph = loaded(comm, paths["undirected"])
    torch.manual_seed(100 + comm.rank)
    model = graph.initialise(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), GCNConv(4, 2)))
    states = comm.allgather_object([tensor.numpy().tobytes() for tensor in model.state_dict().values()])
    assert all(state == states[0] for state in states)
    assert model[2].linear.weight.abs().sum() > 0, "our layers have zeros until they are initialised"


def test_ranks_that_drift_apart_are_found(comm, paths):
    graph = loaded(comm, paths["undirected"])
    model = graph.initialise(torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"after 1 epochs the parameters differ .*sync_gradients"):
        for _ in graph.epochs(3):
            with torch.no_grad():
                model.weight += comm.rank


def test_self_loops_are_not_guessed(comm, paths):
    graph = loaded(comm, paths["undirected"], stated=False)
    gcn, gat = (graph.initialise(layer) for layer in (GCNConv(FEATURES, 2), GATConv(FEATURES, 2)))
    for layer in (gcn, gat):
        with pytest.raises(ConfigError, match="self_loops='add'"):
            layer(graph, graph.features)
    torch.testing.assert_close(
        graph.propagate(lambda rows: rows, "sum", x_src=graph.features), graph.aggregate(graph.features, "sum")
    )
    with_loops = graph.seen_with("add")
    assert with_loops.features is graph.features and graph.seen_with("add") is with_loops
    other = loaded(comm, paths["undirected"], self_loops="add")
    for layer in (gcn, gat):
        torch.testing.assert_close(layer(with_loops, graph.features), layer(other, graph.features), rtol=0, atol=0)
    assert comm.total((with_loops.in_degree - graph.in_degree).sum()) == graph.num_nodes


def test_a_row_that_is_too_wide_says_so(comm, paths):
    graph = loaded(comm, paths["undirected"], "random-clusters", halo_buffer=0.01)
    x = torch.ones(len(graph.ids), 600)
    with pytest.raises(ConfigError, match="widest=600"):
        graph.aggregate(x, "sum")
    with pytest.raises(ConfigError, match="too small for one row"):
        loaded(comm, paths["undirected"], halo_buffer=0.0001)


def test_what_the_file_does_not_have(comm, paths):
    graph = loaded(comm, paths["undirected"])
    with pytest.raises(ConfigError, match="edges=True"):
        _ = graph.edge_weight
    weighted = loaded(comm, paths["directed multi-label"])
    assert len(weighted.edge_weight) == int(weighted.in_degree.sum())
    with pytest.raises(ConfigError, match="does not fit"):
        weighted.accuracy(torch.zeros(len(weighted.ids), CLASSES))
    graph._local.split.fill_(0)  # nobody trains
    with pytest.raises(GraphError, match="training split is empty"):
        graph.loss(torch.zeros(len(graph.ids), CLASSES))


def test_regression_in_a_loop_of_ones_own(comm, session_path):
    spec = {"nodes": 400, "degree": 8, "features": FEATURES, "classes": 4, "seed": 3, "targets": CLASSES}
    path = generated(comm, session_path / "script-targets.h5", 40, **spec)
    graph = loaded(comm, path, precision="fp64")
    assert graph.task == "regression" and graph.labels.shape[1] == CLASSES
    with GraphFile(path) as file:
        targets = file.read("nodes/labels").astype(float)[file.read("nodes/split") == SPLITS["train"]]
    np.testing.assert_allclose(graph.scale.mean, targets.mean(0), rtol=1e-12)
    np.testing.assert_allclose(graph.scale.deviation, targets.std(0), rtol=1e-10)
    constant = graph.scale.in_units(torch.zeros(len(graph.labels), CLASSES))
    assert graph.loss(constant).item() == pytest.approx(targets.var(0).mean(), rel=1e-9)
    assert graph.scores(constant)["train"] == pytest.approx(targets.var(0).mean() ** 0.5, rel=1e-9)
    with pytest.raises(ConfigError, match="--metric accuracy does not fit the task regression"):
        graph.accuracy(constant)


def test_columns_that_the_file_does_not_have(comm, session_path):
    path = generated(comm, session_path / "script-bare.h5", features=0)
    graph = loaded(comm, path, features="degree")
    assert graph.num_features == 2 and graph.features.shape[1] == 2
    np.testing.assert_allclose(graph.features[:, 1], torch.log1p(graph.in_degree.double()).float())
    with pytest.raises(GraphError, match="has no node features") as caught:
        loaded(comm, path)
    assert caught.value.everywhere
