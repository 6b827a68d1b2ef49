"""`hpcgnn evaluate --predictions`: the name says what the file is, and nothing is overwritten unasked."""

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
