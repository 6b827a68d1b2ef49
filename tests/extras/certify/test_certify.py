"""`hpcgnn certify`: agreement to rounding of models and tasks that have it, and refusals of those that have not."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from core.forked import start
from mpi.runs import session_of
from mpi.training import configure, generated

from extras.meshes.test_fields import OPTIONS, file  # noqa: F401
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.extras.certify.certificate import Certificate
from hpcgnn.extras.certify.certifying import certify, check_maps
from hpcgnn.extras.certify.command import CertifyRequest, Shape, check_promise
from hpcgnn.extras.certify.judging import FIRST, LIMIT_FP64, UNITS, limits
from hpcgnn.extras.certify.measuring import CertifiedRun

STEPS = 3
WRONG = """
import torch
from hpcgnn.nn.registry import register


@register("wrong")
class Wrong(torch.nn.Module):
    def __init__(self, d_in, d_out, dtype):
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out, dtype=dtype)

    def message(self, source):
        return source

    def forward(self, graph, x):
        from mpi4py import MPI  # which the job has started

        return graph.propagate(self.message, "mean", x_src=self.map(x)) + 0.01 * MPI.COMM_WORLD.rank
"""


def certified(comm, config, out, *words):
    """The contents of certificate.json. Collective."""
    assert certify(config, session_of(comm), CertifyRequest(words, STEPS, str(out))) == 0
    found = json.loads((out / "certificate.json").read_text())
    comm.barrier()
    return found


@pytest.mark.ranks(3)
@pytest.mark.parametrize("model, precision", [("sage", "fp32"), ("gat", "fp64")])
def test_models_agree_on_every_number_of_ranks(comm, graph, shared_path, model, precision):
    out = shared_path / "certificate"
    config = configure(graph, model=model, precision=precision, dropout=0.3, intra_node="messages")
    found = certified(comm, config, out, "1", "2", "3")
    assert found["holds"] and found["failed"] is None and f"of {model} on" in found["sentence"]
    assert [each["ranks"] for each in found["shapes"]] == [1, 2, 3]
    alone, *others = found["shapes"]
    assert not any(alone["differences"].values()) and alone["partition"]["halo_rows_total"] == 0
    for each in others:
        assert len(each["losses"]) == STEPS and each["sent_in_the_last_step"]["bytes"]["halo_forward"] > 0
        assert 0 < max(each["differences"].values())
        assert precision == "fp64" or max(each["differences_fp64"].values()) < LIMIT_FP64
        allowed = found["limits"].items()
        assert all(each["differences"][name] <= limit for name, limit in allowed)
    if precision == "fp64":
        assert found["rounding"] is None and min(found["limits"].values()) == LIMIT_FP64
    else:
        assert 0 < found["rounding"]["gradients of the first step"] < 1e-5
    assert "| rounding |" in re.sub(" +", " ", (out / "certificate.md").read_text()) or precision == "fp64"
    assert (out / "certificate.tex").read_text().count("\\\\\n") == 5 + (precision == "fp32")


@pytest.mark.ranks(3)
def test_fields_agree_on_ranks_and_replicas(comm, file, shared_path):  # noqa: F811
    config = configure(file[-1], partition="random", **OPTIONS)
    found = certified(comm, config, shared_path / "certificate", "1", "3", "3x3")
    assert [(each["ranks"], each["replicas"]) for each in found["shapes"]] == [(1, 1), (3, 1), (3, 3)]
    assert found["shapes"][2]["partition"]["halo_rows_total"] == 0
    with pytest.raises(GraphError, match=re.escape("partition add") + ".*--ranks 2"):
        certified(comm, config, shared_path / "none", "1", "2")


def test_a_layer_that_knows_its_rank_fails(tmp_path):
    generated(SoloCommunicator(), tmp_path / "g.h5")
    (tmp_path / "wrong.py").write_text(WRONG)
    model = ["--plugin", tmp_path / "wrong.py", "--model", "wrong", "--layers", 2, "--hidden", 8]
    words = ["certify", "--graph", tmp_path / "g.h5", *model, "--steps", 2, "--out", tmp_path / "out"]
    done = start(2, "-m", "hpcgnn", *words)
    assert done.code == 1, done.err
    assert "The loss of step 1 of wrong on g.h5 at 2 ranks differs by " in done.out, done.err
    found = json.loads((tmp_path / "out/certificate.json").read_text())
    assert found["failed"] == {"ranks": "2", "quantity": "loss of step 1"}
    assert found["rounding"][FIRST] < 1e-5  # torch draws other parameters in float64, which do not count


def test_runs_that_promise_no_common_curve():
    for options, expected in (
        ({"schedule": "bns"}, "does not promise one curve: expected --schedule sar"),
        ({"halo_dtype": "bf16"}, "expected --halo-dtype fp32"),
        ({"resume": True, "run_dir": "x"}, "expected --out"),
    ):
        with pytest.raises(ConfigError, match=expected):
            check_promise(configure("graph.h5", **options))


def test_shapes_and_the_maps_that_they_miss(graph_with_maps):
    def shapes(words, ranks, replicas=1):
        request = CertifyRequest(words and tuple(words.split(",")), STEPS)
        return [str(each) for each in request.shapes_of(ranks, replicas)]

    assert shapes(None, 6) == ["1", "2", "4", "6"] and shapes(None, 1) == ["1"]
    assert shapes(None, 8, replicas=2) == ["1", "2x2", "4x2", "8x2"]
    assert shapes("1,4x2,4,4", 4) == ["1", "4x2", "4"]
    for words, said in (("8", "at most the 4 started; start mpiexec -n 8"), ("4x3", "replicas of equally many ranks")):
        with pytest.raises(ConfigError, match=said):
            shapes(words, 4)
    config = configure(graph_with_maps, partition="metis")
    check_maps(config, [Shape(1), Shape(2), Shape(4)])
    with pytest.raises(
        GraphError, match=r"'metis' for 5,7 ranks.*`python -m partition_tools partition add .* --ranks 5,7`"
    ):
        check_maps(config, [Shape(1), Shape(5), Shape(14, 2)])


def test_a_run_that_rounding_has_turned_allows_no_more():
    """A large rounding makes no limit: or a certificate would hold whatever the ranks compute."""
    run = SimpleNamespace(precision="fp32", metric="accuracy")
    vector, config = torch.ones(2, dtype=torch.float64), SimpleNamespace(run=run)
    first = SimpleNamespace(config=config, losses=[2.0, 1.0], gradients=(vector, vector), parameters=vector)
    first.metrics, first.counted = {"val": 0.5}, {"val": 1000}
    small, large = (limits(dict.fromkeys(limits(None, first), each), first) for each in (1e-9, 1.0))
    assert set(large.values()) == {math.sqrt(UNITS["fp32"])} and small["loss of step 1"] == 4 * UNITS["fp32"]
    assert limits(None, first)["val accuracy"] == 0.002


def test_a_difference_of_exactly_0_is_written_as_0():
    vector, halo = torch.ones(2, dtype=torch.float64), {"halo_rows": {"min": 0, "max": 0}}
    config = configure("g.h5", model="sage", precision="fp64")
    sent = {"bytes": {}, "messages": {}}
    one = CertifiedRun(Shape(1), config, "", [2.0], (vector, vector), vector, {}, {}, sent, halo)
    found = Certificate([one, replace(one, shape=Shape(2))], [], pyg=one)
    alike = "agree at 1, 2 ranks to 0 in fp64 (limit 1e-09), and with PyG to 0 in fp64"
    assert found.sentence() == f"Losses of 1 step of sage on g.h5 {alike}" and "0.0e+00" not in found.table()
    alone = Certificate([replace(one, config=config.replace(precision="fp32"))], [one], pyg=one)
    assert alone.sentence().endswith("agree at 1 rank with PyG to 0 in fp64 (limit 1e-09)")
    assert "0.0e+00" not in alone.table()
