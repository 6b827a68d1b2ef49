"""`hpcgnn certify --pyg`: models of PyG beside ours, one that computes something else, and refusals."""

import json
import re

import pytest
from mpi.runs import session_of
from mpi.training import configure, generated

from hpcgnn.app.weights import LIBRARIES
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.extras.certify import certifying
from hpcgnn.extras.certify.certifying import certify
from hpcgnn.extras.certify.command import CertifyRequest
from hpcgnn.extras.certify.judging import FIRST, LIMIT_FP64
from hpcgnn.extras.certify.pyg_model import check_pyg, renamed

pytest.importorskip("torch_geometric", reason="PyG is not installed")
MODELS = """
import torch
from torch_geometric.nn import GCNConv, SAGEConv


class Sage(torch.nn.Module):
    act = torch.relu

    def __init__(self, d_in, d_out):
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(d_in, 8), SAGEConv(8, d_out)

    def forward(self, x, edge_index):
        return self.conv2(type(self).act(self.conv1(x, edge_index)), edge_index)


class Other(Sage):
    act = torch.tanh


class Drops(Sage):
    act = torch.nn.functional.dropout


class Deep(Sage):
    def __init__(self, d, h, c):
        pass


class Pooled(Sage):
    def forward(self, x, edge_index, batch):
        pass


class Weighted(Sage):
    def forward(self, x, edge_index, edge_weight):
        pass


class Gcn(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.first, self.bn, self.last = GCNConv(d_in, 8), torch.nn.BatchNorm1d(8), GCNConv(8, d_out)

    def forward(self, x, edge_index):
        return self.last(torch.relu(self.bn(self.first(x, edge_index))), edge_index)
"""
OPTIONS = {"layers": 2, "hidden": 8, "dropout": 0.0}


@pytest.fixture
def file(comm, shared_path):
    if comm.rank == 0:
        (shared_path / "nets.py").write_text(MODELS)
    comm.barrier()
    return shared_path / "nets.py"


@pytest.mark.ranks(2)
@pytest.mark.parametrize("model, more", [("sage", {}), ("gcn", {"precision": "fp64", "norm": "batch"})])
def test_pyg_learns_the_same(comm, graph, file, model, more):
    trained = {"optimizer": "adamw", "weight_decay": 0.1, "weight_decay_layers": "first", "clip_norm": 0.05}
    config, out = configure(graph, model=model, **OPTIONS, **more, **trained), file.parent / "out"
    request = CertifyRequest(("1", "2"), 4, str(out), pyg=f"{file}:{model.title()}")
    assert certify(config, session_of(comm), request) == 0
    found = json.loads((out / "certificate.json").read_text())
    assert len(found["pyg"]["losses"]) == 4 and "with PyG to " in found["sentence"]
    assert {FIRST, "parameters"} < found["pyg"]["differences_fp64"].keys()
    assert 0 < max(found["pyg"]["differences_fp64"].values()) < LIMIT_FP64
    assert "PyG, fp64" in (out / "certificate.md").read_text()


@pytest.mark.ranks(1)
def test_one_number_of_ranks_beside_pyg(comm, graph, file):
    config, out = configure(graph, model="sage", **OPTIONS, precision="fp64"), file.parent / "out"
    assert certify(config, session_of(comm), CertifyRequest(("1",), 2, str(out), pyg=f"{file}:Sage")) == 0
    found = json.loads((out / "certificate.json").read_text())
    assert re.search(r" agree at 1 rank with PyG to \S+ in fp64 \(limit 1e-09\)$", found["sentence"])
    assert found["shapes"][0]["sent_in_the_last_step"] == {"bytes": {}, "messages": {}}


def test_another_model_is_reported(command, tmp_path):
    graph = generated(SoloCommunicator(), tmp_path / "g.h5")
    (tmp_path / "nets.py").write_text(MODELS)
    words = ["certify", "--graph", graph, "--model", "sage", "--layers", 2, "--hidden", 8, "--steps", 2]
    done = command(*words, "--dropout", 0, "--pyg", f"{tmp_path / 'nets.py'}:Other", "--out", tmp_path / "out")
    assert done.code == 1, done.err
    assert "The loss of step 1 of sage on g.h5 by PyG differs by " in done.out
    failed = json.loads((tmp_path / "out/certificate.json").read_text())["failed"]
    assert failed == {"ranks": "PyG", "quantity": "loss of step 1"}


@pytest.mark.ranks(1)
def test_what_cannot_agree(comm, graph, file, monkeypatch):
    trained, measure = [], certifying.measure
    monkeypatch.setattr(certifying, "measure", lambda *given: trained.append(given) or measure(*given))
    for model, given, words in (
        ("sage", "", "FILE:NAME with one of the file's models: Sage, Other, Drops, Deep, Pooled, Weighted, Gcn"),
        ("sage", ":None_", "FILE:NAME with one of the file's models"),
        ("sage", ":__name__", "expected a torch.nn.Module, or what makes one"),
        ("gcn", ":Sage", "10 tensors do not fit the model"),
        ("pna", ":Sage", "PyG has no layer that computes what pna of hpcgnn does"),
        ("sage", "x:Sage", "--pyg: no file"),
        ("sage", ":Deep", r"nets.py:Deep: expected Deep\(features, classes\), got Deep\(d, h, c\)"),
        ("sage", ":Pooled", r"expected forward\(x, edge_index\), got forward\(x, edge_index, batch\)"),
        ("sage", ":Drops", "two passes of the model differ"),
        ("sage", ":Weighted", r"expected forward\(x, edge_index\), got forward\(x, edge_index, edge_weight\)"),
    ):
        config, out = configure(graph, model=model, **OPTIONS), file.parent / f"out{given}"
        with pytest.raises(HpcgnnError, match=words):
            certify(config, session_of(comm), CertifyRequest(("1",), 2, str(out), pyg=f"{file}{given}"))
        late = given in (":Drops", ":Weighted")  # the passes, and what the graph has, are known with its edges
        assert bool(trained) == late == out.exists()
    check_pyg(config)
    with monkeypatch.context() as without, pytest.raises(ConfigError, match="needs hpcgnn/extras/pyg"):
        without.delitem(LIBRARIES, "pyg")
        check_pyg(config)
    with pytest.raises(ConfigError, match=r"dropout = 0.5 .* expected --set model.dropout=0.0"):
        check_pyg(configure("g.h5", dropout=0.5))
    with pytest.raises(ConfigError, match="--set data.inductive=false"):
        check_pyg(configure("g.h5", dropout=0.0, inductive=True))


def test_layers_are_found_by_their_tensors():
    ours = [
        "convs.0.lin.weight",
        "convs.0.bias",
        "convs.1.lin.weight",
        "convs.1.bias",
        "norms.0.weight",
        "norms.0.bias",
    ]
    theirs = ["a.bias", "a.lin.weight", "ln.weight", "ln.bias", "b.bias", "b.lin.weight", "extra"]
    found = renamed(theirs, ours)
    assert [found[name] for name in theirs] == [
        *("convs.0.bias", "convs.0.lin.weight", "norms.0.weight", "norms.0.bias"),
        *("convs.1.bias", "convs.1.lin.weight", "extra"),
    ]
