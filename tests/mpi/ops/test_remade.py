"""`--keep again`, `remade` and `least`: the numbers of a first output that is kept, without the memory."""

import pytest
import torch

from hpcgnn.errors import ConfigError

from ..memory.test_coded_keeping import gradient, taken
from ..small import MAPS, small_graphs
from ..training import build_trainer, configure, make_graphs

CASES = {
    "sage": {"model": "sage", "dropout": 0.4},
    "sage, two layers": {"model": "sage", "layers": 2, "dropout": 0.4},
    "gcn": {"model": "gcn", "input_dropout": "aggregate", "dropout": 0.3},
    "sage, again": {"model": "sage", "dropout": 0.4, "keep": "again"},
    "gcn, again, tiny buffer": {"model": "gcn", "keep": "again", "halo_buffer": 0.01},
    "sage, tiny buffer": {"model": "sage", "halo_buffer": 0.01},
    "sage, four layers": {"model": "sage", "layers": 4, "dropout": 0.4, "keep": "least"},
    "sage, least": {"model": "sage", "dropout": 0.4, "keep": "least"},
    "gcn, least, tiny buffer": {"model": "gcn", "keep": "least", "halo_buffer": 0.01},
    "gcn, fewest rows": {"model": "gcn", "halo": "least"},
}
CASES = {f"{name}, {prune}": {**case, "prune": prune} for name, case in CASES.items() for prune in ("none", "auto")}


@pytest.fixture(scope="module")
def graphs(comm, session_path):
    return make_graphs(comm, session_path, nodes=300, train=0.1) | small_graphs(comm, session_path)


ALL = [(name, kind) for name in CASES for kind in ("undirected", "directed multi-label")]
ALL += [
    (f"{name}, none", kind) for name in ("sage", "gcn", "sage, again", "sage, least") for kind in ("star", "random")
]


@pytest.mark.parametrize("name, kind", ALL)
def test_the_same_numbers(comm, graphs, name, kind):
    """Loss, evaluation and gradients, in fp64; 100 columns take two turns."""
    options = {"hidden": 100, "precision": "fp64", "keep_input": "always", "keep": "remade", **CASES[name]}
    configs = [configure(graphs[kind], **{**options, **more}) for more in ({"keep": "exact"}, {})]
    exact, remade = (build_trainer(comm, config, MAPS[kind]) for config in configs)
    assert any(exact.views.shares) == ("auto" in name)
    for epoch in (0, 1):
        (loss, wanted), (same, found) = gradient(exact, epoch), gradient(remade, epoch)
        assert abs(loss - same) < 1e-9 * (1 + abs(loss))
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10 * float(wanted.abs().max()))
    exact.step(2), remade.step(2)
    wanted, found = exact.evaluate(), remade.evaluate()
    assert found.keys() == wanted.keys() and all(abs(found[k] - wanted[k]) < 1e-9 for k in wanted)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("layers, keep", [(2, "again"), (2, "remade"), (3, "remade"), (3, "least")])
def test_mixed(comm, graphs, layers, keep):
    """Within the rounding of bfloat16."""
    options = {"model": "sage", "layers": layers, "hidden": 100, "precision": "mixed"}
    configs = [configure(graphs["undirected"], keep=each, **options) for each in ("exact", keep)]
    (loss, wanted), (near, found) = (gradient(build_trainer(comm, config, "metis"), 0) for config in configs)
    assert abs(loss - near) < 2**-8 * loss
    assert (found - wanted).norm() < 2**-6 * wanted.norm()


@pytest.mark.ranks(2)
def test_memory(comm, session_path):
    """A step has the second output, and neither the first nor its gradient; with `least` not the second either. With
    `again` the first is there until the second is, and nowhere beside the sums for rows with edges to other ranks.
    """
    graph = make_graphs(comm, session_path, nodes=6_000)["undirected"]
    kinds = "exact", "again", "remade", "int8", "least"
    configs = [configure(graph, model="sage", hidden=256, keep=keep) for keep in kinds]
    (exact, own), (again, _), (remade, _), (coded, _), (least, _) = (taken(comm, config) for config in configs)
    # One rank has no such sums: the forward pass takes most. A tile more is there.
    assert exact > again if comm.size == 1 else exact - again >= own * 4 * 256 - 2048 * 4 * 256 - 2**19
    assert exact - remade >= own * 4 * (256 - 64) - 2**19
    assert remade == coded
    assert remade - least >= own * 4 * (256 - 2 * 56) - 2**19


@pytest.mark.ranks(1, 2)
def test_again_is_as_exact_forwards(comm, graphs):
    """To the bit."""
    configs = [configure(graphs["undirected"], model="sage", dropout=0.4, keep=keep) for keep in ("exact", "again")]
    (loss, _), (same, _) = (gradient(build_trainer(comm, config, "metis"), 0) for config in configs)
    assert same == loss


@pytest.mark.ranks(2)
def test_refusals(comm, graphs):
    for options in ({"model": "gin"}, {"model": "sage", "norm": "layer"}, {"model": "gcn", "keep_input": "never"}):
        with pytest.raises(ConfigError, match="--keep remade"):
            build_trainer(comm, configure(graphs["undirected"], keep="remade", **options), "metis")
