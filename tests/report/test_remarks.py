"""Shared cores and caps that never bit are said where efficiency is shown, and nothing is said of what is not known."""

import math
import re
from types import SimpleNamespace

import pytest

from hpcgnn.report.read import read_rank_records, read_runs
from hpcgnn.report.remarks import crowds, halo_rounds, remarks, threads_per_core
from hpcgnn.report.study import build_study

from .conftest import change_ranks, write_report


def run_of(*ranks):
    """A run of ranks given as (host, cores, threads)."""
    return SimpleNamespace(ranks=[{"host": host, "cores": cores, "threads": threads} for host, cores, threads in ranks])


@pytest.mark.parametrize(
    "ranks, found, most",
    [
        ([("a", [0], 1), ("a", [1], 1)], [], 1.0),
        ([("a", [0, 1], 1), ("a", [0, 1], 1)], [], 1.0),
        ([("a", [0, 1], 1)] * 8, [(8, 1, 2)], 4.0),
        ([("a", [0, 1], 2)] * 2 + [("b", [0, 1], 2)], [(2, 2, 2)], 2.0),
        ([("a", [0, 1], 1), ("a", [1, 2], 1), ("a", [2], 1), ("a", [0], 1)], [(4, 1, 3)], 4 / 3),
        ([("a", [0], 1), ("b", [0], 1)], [], 1.0),
        ([("a", [0, 1, 2], 4)], [(1, 4, 3)], 4 / 3),
    ],
)
def test_crowds(ranks, found, most):
    assert crowds(run_of(*ranks)) == found
    assert threads_per_core(run_of(*ranks)) == pytest.approx(most)


def test_what_records_do_not_tell():
    run = SimpleNamespace(ranks=[{"host": "a"}, {"host": "a"}])
    assert crowds(run) is None and math.isnan(threads_per_core(run)) and math.isnan(halo_rounds(run))


def crowd(path, cores):
    change_ranks(path, lambda record: record.update(cores=cores, threads=1))


def test_shared_cores_are_said_with_efficiency(copied, tmp_path, drawing_only):
    drawing_only("epoch_time", "speedup", "efficiency", "bytes")
    one, two = copied("p1-a"), copied("p2-a")
    crowd(one, [0, 1])
    crowd(two, [3])
    runs, _ = read_runs([one, two])
    study = build_study(runs)
    said = "† 2 ranks shared 1 core: efficiency here measures the sharing, not the program."
    assert said in remarks(study)
    write_report(study, [], tmp_path / "out")
    table = (tmp_path / "out/scaling.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| sage")]
    assert ["% †" in row for row in rows] == [False, True] and said in table
    assert re.search(r"\\% \$\\dagger\$ +&", (tmp_path / "out/scaling.tex").read_text())
    for name in ("efficiency", "speedup", "epoch_time"):
        assert "† 2 ranks shared 1 core" in (tmp_path / f"out/{name}.svg").read_text()
    assert "shared" not in (tmp_path / "out/bytes.svg").read_text()
    assert (tmp_path / "out/report.html").read_text().count(said) >= 3, "under the table and the figures"


def test_cores_of_their_own_need_no_word(copied, tmp_path):
    path = copied("p2-a")
    crowd(path, [0, 1])
    study = build_study(read_runs([path])[0])
    assert not any("shared" in line for line in remarks(study))


def test_a_cap_that_never_bit(runs, study_dir):
    rounds = {
        name: read_rank_records(study_dir / name, 2)[1]["halo_rounds"] for name in ("p2-a", "fine-p2", "tight-p2")
    }
    assert rounds["p2-a"] == rounds["fine-p2"] == 1 < rounds["tight-p2"]
    study = build_study(runs("p1-a", "p2-a", "fine-p2", "tight-p2"))
    assert [line for line in remarks(study) if "cap" in line] == [
        "At 2 ranks the whole halo passed in one round: the cap of 0.05 and 8 MiB never bit, and a larger "
        "--halo-buffer would change nothing."
    ]
    assert not any("cap" in line for line in remarks(build_study(runs("tight-p2"))))
    assert not any("cap" in line for line in remarks(build_study(runs("p1-a")))), "one rank exchanges nothing"
