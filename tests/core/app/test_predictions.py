"""`hpcgnn evaluate --predictions`: the name says what the file is, and nothing is overwritten unasked."""

import h5py
import numpy as np
import pytest

from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

from ..forked import start, train


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A finished run on a graph with maps for 1 and 2 ranks."""
    folder = tmp_path_factory.mktemp("predictions")
    generate_graph("planted", folder / "g.h5", Spec(nodes=300, degree=6, features=8, classes=3, seed=1))
    partition_graph(folder / "g.h5", [1, 2], num_clusters=16)
    done = train(0, "--graph", folder / "g.h5", "--run-dir", folder / "run", "--epochs", 3, "--hidden", 8)
    assert done.code == 0, done.err
    return folder / "run"


def evaluate(ranks, run_dir, *options):
    return start(ranks, "-m", "hpcgnn", "evaluate", run_dir, *options)


def test_a_table_and_an_array_say_the_same(run_dir, tmp_path):
    for ranks, name in ((0, "p.h5"), (0, "p.csv"), (2, "q.CSV"), (2, "q.hdf5")):
        done = evaluate(ranks, run_dir, "--predictions", tmp_path / name)
        assert done.code == 0 and f"predictions in {tmp_path / name}" in done.out, done.err
    for one, two in (("p.csv", "q.CSV"), ("p.h5", "q.hdf5")):
        assert (tmp_path / one).read_bytes() == (tmp_path / two).read_bytes()
    table = np.loadtxt(tmp_path / "p.csv", np.int64, delimiter=",", skiprows=1)
    assert (tmp_path / "p.csv").read_text().startswith("node,class\n0,")
    with h5py.File(tmp_path / "p.h5") as first, h5py.File(tmp_path / "q.hdf5") as second:
        assert (table == np.column_stack([np.arange(300), first["prediction"][:]])).all()
        assert (first["prediction"][:] == second["prediction"][:]).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.h5", "q.CSV", "q.hdf5"], "no temporary file"


@pytest.mark.parametrize("dry", [(), ("--dry-run", "1,2")], ids=["run", "dry run"])
@pytest.mark.parametrize(
    "name, words",
    [
        ("p.txt", "ends with .h5 or .hdf5 (arrays), .csv or .parquet (a table), or .npy (one array), got '.txt'"),
        ("p", "got 'none of them'"),
        ("here.csv", "exists; choose another name or overwrite it with --force"),
        ("absent/p.h5", "there is no directory"),
        ("folder.csv", "is a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(run_dir, tmp_path, name, words, dry):
    (tmp_path / "here.csv").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    before = (run_dir / "evaluation.json").exists() and (run_dir / "evaluation.json").stat().st_mtime_ns
    done = evaluate(0 if dry else 2, run_dir, "--predictions", tmp_path / name, *dry)
    assert done.code == 2 and len(done.errors) == 1 and words in done.errors[0], done.err
    assert (tmp_path / "here.csv").read_text() == "mine"
    assert before == ((run_dir / "evaluation.json").exists() and (run_dir / "evaluation.json").stat().st_mtime_ns)


def test_with_force_a_file_is_replaced(run_dir, tmp_path):
    (tmp_path / "p.csv").write_text("old")
    assert evaluate(0, run_dir, "--predictions", tmp_path / "p.csv", "--force", "--dry-run", "2").code == 0
    assert (tmp_path / "p.csv").read_text() == "old"
    assert evaluate(0, run_dir, "--predictions", tmp_path / "p.csv", "--force").code == 0
    assert (tmp_path / "p.csv").read_text().startswith("node,class\n")
