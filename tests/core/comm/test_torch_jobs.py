"""Whole jobs over torch.distributed, as a user starts them: the results and bytes of MPI, without MPI.

`import mpi4py` is an error in these jobs, and in the process from which most are forked. So no message can go through
MPI.
"""

import functools
import json

import pytest
from run_files import losses

from .. import forked
from ..launching import start

pytestmark = pytest.mark.slow

BLOCKED = "import sys; sys.modules['mpi4py'] = None; from hpcgnn.__main__ import main; sys.exit(main(sys.argv[1:]))"
TRAINING = ("--hidden", 8, "--layers", 2, "--partition", "dealt", "--epochs", 4, "--eval-every", 2)
TRAINING += ("--intra-node", "messages")
without_mpi = functools.partial(forked.start, modules=("-mpi4py",), without_mpi=True)


@pytest.fixture(scope="module")
def over_mpi(good):
    """The run directory of a job over MPI."""
    return run_of(good, "mpi", "-m", "hpcgnn", start=forked.start)


def run_of(good, name, *python, options=(), start=without_mpi, **environment):
    """The run directory of a training, whose name has as many letters as any other's: it is sent."""
    path = good.parent / f"{name:-<5}"
    result = start(2, *python, "train", "--graph", good, "--run-dir", path, *TRAINING, *options, **environment)
    assert result.code == 0, result.err
    return path


def traffic(run_dir):
    """[{kind: (messages, bytes sent, bytes received)}] of the ranks."""
    lines = (run_dir / "ranks.jsonl").read_text().splitlines()
    records = [json.loads(line)["traffic"] for line in lines]
    return [
        {kind: (entry["messages"], entry["bytes_sent"], entry["bytes_received"]) for kind, entry in record.items()}
        for record in records
    ]


def without_times(counted):
    """Records hold seconds, whose digits vary: objects with them are of other lengths every time."""
    return [{kind: entry for kind, entry in record.items() if kind != "control"} for record in counted]


def test_a_job_without_mpi_is_the_same_to_the_bit(good, over_mpi):
    """A sum of two numbers has one order, so two ranks compute the same."""
    path = run_of(
        good, "gloo", "-c", BLOCKED, options=["--comm", "torch"], start=functools.partial(start, without_mpi=True)
    )
    assert losses(path) == losses(over_mpi)
    assert without_times(traffic(path)) == without_times(traffic(over_mpi))
    again = ["--run-dir", path, "--resume", "--comm", "torch", "--epochs", 6]
    result = without_mpi(2, "-c", BLOCKED, "train", *again)
    assert result.code == 0, result.err
    assert losses(path)[:4] == losses(over_mpi) and len(losses(path)) == 6
    table = path / "predictions.csv"
    for words in (["evaluate", path], ["predict", path, "-o", table]):
        result = without_mpi(2, "-c", BLOCKED, *words, "--comm", "torch", "--partition", "dealt")
        assert result.code == 0, result.err
    assert table.exists() and (path / "evaluation.json").exists()


TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2 -m hpcgnn".split()


@pytest.mark.parametrize(
    "words, said",
    [(["-c", BLOCKED], ["ranks started by no launcher"]), (TORCHRUN, ["on 2 ranks", "ranks started by torchrun"])],
)
def test_who_starts_ranks(words, said):
    result = start(0, *words, "doctor", "--comm", "torch")
    assert result.code == 0 and all(each in result.out for each in said), result.err
