"""Training over torch.distributed where SLURM knows of no MPI: srun and two variables, on two virtual nodes."""

import json

import pytest
from slurm_helpers import ROOT

SRUN = "srun --quiet --mpi=none --nodes=2 --ntasks-per-node=2"
RANKS = f"MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 {SRUN}"
TRAINING = "--comm torch --hidden 8 --epochs 3"
BLOCKED = "import sys; sys.modules['mpi4py'] = None; from hpcgnn.__main__ import main; sys.exit(main(sys.argv[1:]))"


def test_srun_and_the_address_are_all_that_it_takes(cluster, graph):
    """No MPI is there; without the address the script's line is printed once."""
    done = cluster.run(f"{SRUN} hpcgnn train {TRAINING} --graph {graph}", check=False)
    assert done.returncode == 2 and done.stderr.count("export MASTER_ADDR=$(scontrol show hostnames") == 1, done.stderr
    done = cluster.run(f'{RANKS} python -c "{BLOCKED}" train {TRAINING} --graph {graph} --run-dir plain')
    summary = json.loads((cluster.home / "plain/summary.json").read_text())
    assert summary["ranks"] == 4 and "rank 0-1 on cores" in done.stderr + done.stdout
    # The two ranks of each node are forked from one process.
    done = cluster.run(f"HPCGNN_FORK_SERVER=1 {RANKS} hpcgnn predict plain --comm torch -o plain/predictions.csv")
    assert "fork server" not in done.stderr
    assert len((cluster.home / "plain/predictions.csv").read_text().splitlines()) == 601


@pytest.mark.parametrize("stage, fault, words", [("step", "kill", "rank 2 ("), ("load", "raise", "rank 2 of 4 failed")])
def test_a_lost_rank_ends_the_job_on_all_nodes(cluster, graph, stage, fault, words):
    """srun itself would let the others wait."""
    inject = f"python {ROOT}/tests/faults/inject.py {stage} {fault} 2 1 -- train"
    done = cluster.run(f"{RANKS} {inject} {TRAINING} --graph {graph} --run-dir {stage}", check=False)
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert "no rank has got on" not in done.stderr, "no need for the watchdog"
