"""A model, a task, a plugin of the loop, a transport and a schedule of a user are one file each for `--plugin`."""

import json

import graphs
import pytest
from core.forked import start
from pages import blocks, example, read
from run_files import losses


@pytest.fixture
def hpcgnn(tmp_path):
    """hpcgnn(file, command, options …) runs it with this file of the page as a plugin."""
    graphs.planted(tmp_path / "g.h5", nodes=60, degree=4, features=4)

    def run(file, command, *options):
        (tmp_path / file).write_text(example("extending.md", f"# {file}\n"))
        job = {"train": ["--plugin", file, "--graph", "g.h5", "--hidden", 8], "evaluate": ["run"]}[command]
        return start(0, "-m", "hpcgnn", command, *job, *options, cwd=tmp_path)

    return run


@pytest.mark.parametrize(
    "file, options, said",
    [
        ("ordinal.py", ["--task", "ordinal"], "distance"),
        ("norms.py", [], "epoch 2 norms: ["),
        ("site.py", ["--comm", "site"], '"comm": "site"'),
    ],
)
def test_one_file_is_enough(hpcgnn, file, options, said, tmp_path):
    done = hpcgnn(file, "train", "--epochs", 2, "--run-dir", "run", *options)
    assert done.code == 0 and "without effect" not in done.err, done.err
    result = (tmp_path / "run" / "summary.json").read_text()
    assert said in done.out + result and (json.loads(result)["task"] == "ordinal") == (file == "ordinal.py")
    done = hpcgnn(file, "evaluate")
    assert done.code == 0, done.err


def test_one_file_is_a_schedule_with_options(hpcgnn, tmp_path):
    (tmp_path / "c.toml").write_text("[schedule]\npauses = 3\n")
    run = ["--schedule", "slow", "--run-dir", "run", "--epochs", 1]
    done = hpcgnn("slow.py", "train", *run, "--config", "c.toml")
    assert done.code == 0 and "pauses: 3" in done.out and "without effect" not in done.err, done.err
    assert "pauses = 3" in (tmp_path / "run" / "config.toml").read_text()
    done = hpcgnn("slow.py", "evaluate")
    assert done.code == 0, done.err
    done = hpcgnn("slow.py", "train", "--epochs", 1, "--dry-run", "1", "--set", "schedule.pauses=5")
    assert done.code == 2 and "--pauses belongs to --schedule slow, got --schedule sar" in done.err


@pytest.mark.slow
def test_a_model_has_the_same_losses_on_any_number_of_ranks(tmp_path):
    found = []
    graphs.planted(tmp_path / "g.h5", [1, 2], nodes=160, features=6)
    (tmp_path / "edgeconv.py").write_text(blocks(read("extending.md"), "python")[0])
    words = ("--graph", "g.h5", "--plugin", "edgeconv.py", "--model", "edgeconv", "--precision", "fp64", "--dropout", 0)
    for ranks in (0, 2):
        done = start(ranks, "-m", "hpcgnn", "train", *words, "--epochs", 3, "--run-dir", ranks, cwd=tmp_path)
        assert done.code == 0, done.err
        found.append(losses(tmp_path / str(ranks)))
    assert found[1] == pytest.approx(found[0], rel=0, abs=1e-9) and len(set(found[0])) == 3
