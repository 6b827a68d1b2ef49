"""Weights of Dist-GNN: read, trained on as a network with its names learns, and given back."""

import itertools
import json
import re
from dataclasses import replace

import graphs
import numpy as np
import pytest
import torch
from torch import nn

from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.storage import write_graph

safetensors = pytest.importorskip("safetensors.torch", reason="the extra `export` is not installed")
HIDDEN, LAYERS, PRODUCTS, EPOCHS, LR = 5, 2, 3, 3, 0.01
MODEL = {"model": "meshgraphnet", "layers": LAYERS, "hidden": HIDDEN, "mlp-layers": PRODUCTS - 1, "activation": "elu"}
MODEL |= {"task": "fields", "input-fields": "u", "target-fields": "p", "lag": 0, "precision": "fp64", "lr": LR}
ENCODED = {"edge-states": "encoded"}


class TheirPerceptron(nn.Module):
    def __init__(self, d_in, d_out=HIDDEN, norm=True):
        super().__init__()
        widths = [d_in, *[HIDDEN] * (PRODUCTS - 1), d_out]
        self.mlp = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))
        self.norm_layer = nn.LayerNorm(d_out) if norm else nn.Identity()

    def forward(self, *parts):
        x = self.mlp[0](torch.cat(parts, 1))
        for linear in self.mlp[1:]:
            x = linear(nn.functional.elu(x))
        return self.norm_layer(x)


class TheirNetwork(nn.Module):
    """Its function, with its names: the edges of each layer are the encoder's."""

    def __init__(self):
        super().__init__()
        self.node_encoder, self.edge_encoder = TheirPerceptron(3), TheirPerceptron(4)
        self.node_decoder = TheirPerceptron(HIDDEN, 1, norm=False)
        parts = {"edge_updater": 3 * HIDDEN, "node_updater": 2 * HIDDEN}
        self.processor = nn.ModuleList(
            nn.ModuleDict({name: TheirPerceptron(width) for name, width in parts.items()}) for _ in range(LAYERS)
        )

    def forward(self, x, position, src, dst):
        apart = position[src] - position[dst]
        x, e = self.node_encoder(x), self.edge_encoder(apart, apart.norm(dim=1, keepdim=True))
        for layer in self.processor:
            sums = torch.zeros_like(x).index_add(0, dst, e + layer["edge_updater"](x[src], x[dst], e))
            x = x + layer["node_updater"](x, sums)
        return self.node_decoder(x)


@pytest.fixture
def given(tmp_path):
    """(graph file, weights, the losses of the network from these, its state afterwards)."""
    graph, random = graphs.with_task(graphs.random_directed()), np.random.default_rng(4)
    flow, position = random.standard_normal((2, graph.num_nodes, 3))
    pressure = flow[:, :1] * flow[:, 1:2]
    where = graphs.layout(graph, 1)
    order, one = where.order, np.zeros(1, np.int32)
    fields = {"u": flow[None, order], "p": pressure[None, order]}
    series = FieldSeries(fields, np.zeros(1), one, np.ones(1, np.uint8))
    data = graphs.graph_data(graph, order, where.offsets)
    data = replace(data, features=None, position=position[order], snapshots=series)
    write_graph(tmp_path / "g.h5", data, [("metis", 1, next(iter(where.maps.values())) * 0, {})])
    torch.manual_seed(0)
    network = TheirNetwork().double()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    x, y = (torch.from_numpy((each - each.mean(0)) / each.std(0)) for each in (flow, pressure))
    optimizer, losses = torch.optim.Adam(network.parameters(), LR), []
    edges = torch.from_numpy(position), torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = (network(x, *edges) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return tmp_path / "g.h5", tmp_path / "w.pt", losses, network.state_dict()


def words(**more):
    return [part for name, value in {**MODEL, **more}.items() for part in (f"--{name}", value)]


def test_training_goes_on_as_there(command, given, tmp_path):
    graph, weights, losses, state = given
    of_run = ["--graph", graph, "--epochs", EPOCHS, "--eval-every", 0]
    done = command("import-weights", weights, *of_run, *words(**ENCODED), "--run-dir", tmp_path / "a")
    assert done.code == 0 and "Dist-GNN's names" in done.out + done.err, done.err
    done = command("train", "--resume", "--run-dir", tmp_path / "a")
    assert done.code == 0, done.err
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    np.testing.assert_allclose([json.loads(line)["loss"] for line in lines], losses, rtol=1e-9)
    for to, count in (("dist-gnn", len(state)), ("torch", len(state) + 5)):
        file = tmp_path / f"{to}.safetensors"
        assert command("export", tmp_path / "a", "-o", file, "--to", to, "--weights", "last").code == 0
        found = safetensors.load_file(file)
        assert len(found) == count
        for name in state if to == "dist-gnn" else ():
            np.testing.assert_allclose(found[name], state[name], rtol=1e-6, atol=1e-9, err_msg=name)
        more = words(**ENCODED)
        done = command("import-weights", file, "--graph", graph, *more, "--run-dir", tmp_path / f"from-{to}")
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    "more, expected",
    [
        ({}, "computes as --edge-states encoded, and the run has updated"),
        ({**ENCODED, "activation": "relu"}, "computes as --activation elu, and the run has relu"),
        ({**ENCODED, "hidden": 4}, r"tensors do not fit the model: .*edge_updater"),
    ],
    ids=["states", "activation", "width"],
)
def test_refusals(command, given, tmp_path, more, expected):
    graph, weights, *_ = given
    done = command("import-weights", weights, "--graph", graph, *words(**more), "--run-dir", tmp_path / "a")
    assert done.code == 2
    assert re.search(expected, done.err), done.err
