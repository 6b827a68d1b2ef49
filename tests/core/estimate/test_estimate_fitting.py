"""The line about memory of `hpcgnn train --dry-run`, and the refusal of runs that do not fit the nodes of the job."""

import re

import pytest

from hpcgnn.__main__ import main


@pytest.fixture
def dry_run(graph, tmp_path, capsys, monkeypatch):
    """dry_run(ranks, *options, **variables of SLURM) -> (exit code, standard output, standard error)."""

    def run(ranks, *more, **variables):
        for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE", "NTASKS_PER_NODE", "JOB_NUM_NODES"):
            monkeypatch.delenv(f"SLURM_{name}", raising=False)
            if name in variables:
                monkeypatch.setenv(f"SLURM_{name}", str(variables[name]))
        words = f"train --dry-run {ranks} --graph {graph} --run-dir {tmp_path}/r --model sage --layers 2 --hidden 8"
        code = main([*words.split(), *map(str, more)])
        return code, *capsys.readouterr()

    return run


def test_what_does_not_fit_is_refused_by_number(dry_run):
    """Nearly all memory of a rank of a small graph is libraries; ranks of a node share less than half of them."""
    _, out, _ = dry_run("2")
    one, unit = re.search(r"about ([\d.]+) ([MG])iB on the largest", out).groups()  # this process may be a large one
    memory = round(1.3 * float(one) * (1024 if unit == "G" else 1))
    code, out, err = dry_run("2,4", MEM_PER_NODE=memory, JOB_NUM_NODES=2)
    assert code == 2 and out.count("memory on") == 2
    shown = f"{memory:.3g} MiB" if memory < 1024 else f"{memory / 1024:.3g} GiB"
    assert f"the job has {shown} on a node" in err and ": 4 (" in err and ": 2 (" not in err and "--mem" in err
    assert dry_run("4", MEM_PER_NODE=4 * memory, JOB_NUM_NODES=2)[0] == 0


@pytest.mark.parametrize("variables", [{"MEM_PER_NODE": 10}, {"JOB_NUM_NODES": 1}], ids=str)
def test_nothing_is_refused_where_the_batch_system_does_not_say(dry_run, variables):
    assert dry_run("2", **variables)[0] == 0


def test_rounds_that_last_for_minutes_do_not(dry_run):
    options = ("--schedule", "tma", "--average-seconds", 600)
    code, out, _ = dry_run("4", *options)
    assert code == 0 and "memory on 4 ranks" in out
