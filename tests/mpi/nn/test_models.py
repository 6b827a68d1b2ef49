"""Whole models over ranks against the oracle: logits, loss and every parameter's gradient, in float64, dropout on."""

import graphs
import numpy as np
import oracle
import pytest
import torch

from hpcgnn.config import make_config
from hpcgnn.engine.trainer import Trainer
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.registry import complete
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options import ModelConfig
from hpcgnn.plan.choices import registry_choices
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.plugins.registry import make_plugins

from ..gathering import check_rows
from ..small import edges_of, written
from ..training import outputs_and_gradients, widest_row

SEED, EPOCH, CLASSES = 7, 4, 3
LINEAR = ("gcn", "sage", "gin", "sgc")  # the models whose aggregation is linear
CHOICES = registry_choices()
GRAPHS = {
    "undirected": graphs.with_task(graphs.random_undirected(), num_features=10, num_classes=CLASSES),
    "directed weighted": graphs.with_task(graphs.random_directed(weighted=True), num_features=10, num_classes=CLASSES),
    "multi-label": graphs.with_task(graphs.random_directed(), num_features=10, num_classes=CLASSES, multi_label=True),
}
CASES = {
    "kept": dict(hidden=6),  # aggregate once, then dropout on the aggregate
    "kept, scaled": dict(hidden=6, input_dropout="scaled"),
    "kept always": dict(hidden=4, keep_input="always"),
    "transform first": dict(hidden=4),  # 10 > 2 * 4: too wide to keep
    "never kept, wider hidden": dict(hidden=12, keep_input="never"),
    "raw": dict(hidden=12, input_dropout="raw"),
    "raw, narrower hidden": dict(hidden=6, input_dropout="raw"),
    "no input dropout": dict(hidden=6, input_dropout="none"),
    "sparse": dict(hidden=6, sparse_input=True),
    "sparse, no input dropout": dict(hidden=6, sparse_input=True, input_dropout="none"),
    "layer norm": dict(hidden=6, norm="layer"),
    "batch norm, residual": dict(hidden=6, norm="batch", residual=True, layers=4),
    "residual": dict(hidden=6, residual=True, layers=5),
    "one layer": dict(layers=1),
}


@pytest.fixture(scope="module")
def files(comm, session_path):
    """{(graph, sparse): (layout, path)}."""
    return {
        (name, sparse): written(comm, session_path, graph, f"models-{name.replace(' ', '-')}", sparse)[1:]
        for name, graph in GRAPHS.items()
        for sparse in (False, True)
    }


def spec_of(kind, sparse_input=False, **options):
    usual = {"hidden": 6, "dropout": 0.4, "input_dropout": "aggregate"}
    options = ModelConfig(model=kind, **{**usual, **options})
    return complete(ModelSpec(options, 10, CLASSES, sparse_input, dtype=torch.float64))


def is_kept(spec):
    """When the aggregate of the input is kept: dense features, dropout not on the raw input, and not much wider
    than the output.
    """
    first = spec.classes if spec.options.model == "sgc" or spec.options.layers == 1 else spec.options.hidden
    wanted = {"auto": spec.d_in <= 2 * first, "always": True, "never": False}[spec.options.keep_input]
    return wanted and not spec.sparse_input and spec.options.input_dropout != "raw"


def make_trainer(comm, spec, path, cluster_to_rank, rows=9, **options):
    config = make_config({"graph": "-", "seed": SEED, **options}, CHOICES)
    with GraphFile(path) as file:
        decided = RunPlan(config.replace(task=file.meta.task), spec)
        halo_buffer = 4 * rows * widest_row(decided)
    local = graphs.load(path, cluster_to_rank, comm, cap=rows, self_loops=self_loops_of(spec))
    trainer = Trainer(local, decided, comm, HaloBuffers(halo_buffer), make_plugins)
    with torch.no_grad():  # away from the initial zeros of biases and epsilon, the same on all ranks
        for index, parameter in enumerate(trainer.model.parameters()):
            draws = torch.Generator().manual_seed(index)
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draws, dtype=parameter.dtype))
    trainer.random.epoch = EPOCH
    return trainer


def self_loops_of(spec):
    return "add" if spec.options.model in ("gcn", "sgc") else "keep"


def right(graph, spec, state, train):
    """(logits, loss, gradients by name) of the oracle."""
    a = oracle.adjacency(graph.num_nodes, graph.src, graph.dst, graph.weight, self_loops_of(spec))
    parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in state.items()}
    logits = oracle.model(
        a,
        torch.from_numpy(graph.features).double(),
        parameters,
        kind=spec.options.model,
        layers=spec.options.layers,
        norm=spec.options.norm,
        dropout=spec.options.dropout if train else 0.0,
        input_dropout=0.0 if spec.options.input_dropout == "none" or not train else None,
        kept=is_kept(spec),
        scaled=spec.options.input_dropout == "scaled",
        edges=np.bincount(edges_of(graph, self_loops_of(spec))[1], minlength=graph.num_nodes),
        residual=spec.options.residual,
        seed=SEED,
        epoch=EPOCH,
    )
    labels = torch.from_numpy(np.asarray(graph.labels).astype(np.int64))
    mask = torch.from_numpy(graph.split == graphs.TRAIN) & (
        torch.ones(len(labels), dtype=torch.bool) if labels.ndim == 2 else labels >= 0
    )
    loss = oracle.loss(logits, labels, mask)
    loss.backward()
    return logits.detach().numpy(), float(loss.detach()), {name: tensor.grad for name, tensor in parameters.items()}


def on_rank_0(comm, function, *arguments):
    return comm.broadcast_object(function(*arguments) if comm.rank == 0 else None)


def check(comm, trainer, spec, trained, evaluated):
    """Hold the outputs and gradients of a step against the oracle's on one graph, and outputs without dropout against
    those on another.
    """
    state = dict(trainer.model.named_parameters())
    logits, loss, gradients = on_rank_0(comm, right, trained, spec, state, True)
    mine, share, _ = outputs_and_gradients(trainer, trainer.graph)
    check_rows(comm, trainer.local, mine, logits)
    assert float(comm.total(share.detach().clone())) == pytest.approx(loss, abs=1e-9)
    assert gradients.keys() == state.keys()
    for name in state:
        np.testing.assert_allclose(state[name].grad, gradients[name], rtol=0, atol=1e-9, err_msg=name)
    if spec.options.norm != "batch":  # which would use its running statistics
        trainer.model.eval()
        with torch.no_grad():
            own = trainer.model(trainer.graph)
        check_rows(comm, trainer.local, own, on_rank_0(comm, right, evaluated, spec, state, False)[0])


def compare(comm, name, file, spec, map_name, **options):
    """Raise AssertionError where the model differs from the oracle; returns the Trainer."""
    where, path = file
    trainer = make_trainer(comm, spec, path, where.maps[map_name], **options)
    assert isinstance(trainer.local.features, SparseRows) == spec.sparse_input
    assert spec.keeps_input == is_kept(spec)
    check(comm, trainer, spec, GRAPHS[name], GRAPHS[name])
    return trainer


# Every case for a model without and one with a path of its own for the node itself; for the others those that differ.
PAIRS = [
    (kind, case)
    for kind in LINEAR
    for case in CASES
    if kind in ("gcn", "gin")
    or case in ("kept", "kept, scaled", "transform first", "sparse")
    or (kind == "sage" and "norm" in case)
]


@pytest.mark.parametrize("kind, case", PAIRS)
def test_model(comm, files, kind, case):
    spec = spec_of(kind, **CASES[case])
    # All graphs for the common case; for the others an undirected graph, and one of the directed ones in turn.
    turn = 1 + (list(CASES).index(case) + LINEAR.index(kind)) % 2
    for name in GRAPHS if case.startswith("kept") else [list(GRAPHS)[0], list(GRAPHS)[turn]]:
        compare(comm, name, files[name, spec.sparse_input], spec, "random")


@pytest.mark.parametrize("map_name", ["one empty", "all on last", "dealt"])
def test_models_on_maps_with_empty_ranks(comm, files, map_name):
    for kind in LINEAR:
        compare(comm, "undirected", files["undirected", False], spec_of(kind, norm="batch"), map_name)


@pytest.mark.parametrize("name", ["undirected", "directed weighted"])
def test_scaled_dropout_where_sums_of_rows_arrive(comm, files, name):
    """The noise goes by the edges of a node, also where the sum of several of them arrives as one row."""
    spec = spec_of("sage", input_dropout="scaled")
    trainer = compare(comm, name, files[name, False], spec, "random", halo="least")
    sums = trainer.views.local.inward.plan.sending.sums is not None
    assert comm.allgather_object(sums) == [comm.size > 1] * comm.size
