"""Jobs that fail, as a user meets them: the exit code, one line with the remedy, no traceback, no rank left waiting.

Here through the real launcher; tests/mpi/app/test_bad_input.py has the whole list of mistakes, on all ranks of one job.
"""

import graphs
import pytest

from .. import forked
from ..launching import start, train


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small graph file with maps for 2 ranks."""
    graph = graphs.with_task(graphs.random_undirected())
    return graphs.write_file(tmp_path_factory.mktemp("failures") / "g.h5", graph, graphs.layout(graph, 2), 2)


def spoiled(good, tmp_path, position):
    data = bytearray(good.read_bytes())
    data[position(data)] ^= 1
    (tmp_path / "g.h5").write_bytes(data)
    return tmp_path / "g.h5"


def of_features(data):
    """Where the first byte of the features lies."""
    import io

    import h5py

    with h5py.File(io.BytesIO(bytes(data)), "r") as file:
        return file["nodes/features"].id.get_chunk_info(0).byte_offset


def check_refused(result, words):
    assert result.code not in (0, None)
    assert len(result.errors) == 1 and words in result.errors[0], result.err
    assert "Traceback" not in result.err + result.out


@pytest.mark.slow
def test_a_run_that_works(good, tmp_path):
    result = train(
        2, "--graph", good, "--epochs", 2, "--hidden", 8, "--partition", "dealt", "--run-dir", tmp_path / "run"
    )
    assert result.code == 0 and result.errors == [], result.err
    assert (tmp_path / "run" / "summary.json").exists() and "final loss" in result.out


def test_a_flipped_byte_that_only_one_rank_reads(good, tmp_path):
    result = forked.train(
        2, "--graph", spoiled(good, tmp_path, of_features), "--partition", "dealt", "--run-dir", tmp_path / "run"
    )
    check_refused(result, "nodes/features is corrupted")
    assert not (tmp_path / "run").exists()


def test_no_map_for_this_number_of_ranks(good, tmp_path):
    check_refused(forked.train(3, "--graph", good, "--run-dir", tmp_path / "run"), "--ranks 3")


SLOW_RANK_0 = """
import os, sys, time
from hpcgnn.__main__ import main
time.sleep(2 * (os.environ["PMI_RANK"] == "0"))
sys.exit(main(["train", "--graph", {graph!r}, *{options!r}]))
"""


@pytest.mark.parametrize("options, words", [(["--hiden", "8"], "--hidden"), (["--epochs", "0"], "expected at least 1")])
def test_a_mistake_in_the_options_is_said_however_slow_rank_0_is(good, options, words):
    """Every rank finds it before MPI starts, and those that leave first must not take the only one that speaks with
    them.
    """
    check_refused(forked.start(2, "-c", SLOW_RANK_0.format(graph=str(good), options=options)), words)


def test_a_key_of_the_file_that_does_not_exist(good, tmp_path):
    (tmp_path / "c.toml").write_text("[model]\nhiden = 8\n")
    check_refused(forked.train(0, "--config", tmp_path / "c.toml", "--graph", good), "'hidden'")


def test_a_run_directory_that_exists(good, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused = forked.train(2, "--graph", good, "--partition", "dealt", "--run-dir", tmp_path)
    check_refused(refused, "--resume")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_without_launcher_it_is_one_rank(good, tmp_path):
    result = forked.train(0, "--graph", good, "--epochs", 1, "--hidden", 8, "--run-dir", tmp_path / "run")
    assert result.code == 0, result.err
    check_refused(forked.train(0, "--graph", tmp_path / "absent.h5"), "no graph file")


PROGRAM = """
import sys
from hpcgnn.comm.launch.run import run
from hpcgnn.errors import GraphError
def work(session):
    comm = session.comm
    if comm.rank == 1:
        {act}
    comm.allgather_object(None)
    comm.allgather_object(None)
sys.exit(run(work))
"""


@pytest.mark.parametrize(
    "act, code, words",
    [
        ("raise RuntimeError('lost my way')", 1, "RuntimeError: lost my way"),
        ("sys.exit(0)", 1, "SystemExit: 0"),
    ],
)
def test_a_rank_that_dies_ends_the_job(act, code, words):
    """The others wait for it in a collective call; exit code 0 on one rank is no success either."""
    result = forked.start(3, "-c", PROGRAM.format(act=act))
    assert result.code == code, result.err
    assert "rank 1 of 3 failed" in result.err and "Traceback" in result.err and words in result.err


ALL_BUT_ONE = """
import sys
from hpcgnn.comm.launch.run import run
def work(session):
    if session.comm.rank != 2:
        raise ValueError("odd" if session.comm.rank == 3 else "even")
    session.comm.allgather_object(None)
sys.exit(run(work))
"""


def test_ranks_that_fail_together_print_one_traceback():
    """The lowest speaks, and says who failed alike and who otherwise."""
    result = forked.start(4, "-c", ALL_BUT_ONE)
    assert result.code == 1, result.err
    assert result.err.count("Traceback (most recent call last)") == 1
    assert "rank 0 of 4 failed and ends the job (rank 1 alike; rank 3: ValueError: odd):" in result.err


def test_a_mistake_that_only_one_rank_knows_of_ends_the_job():
    result = forked.start(3, "-c", PROGRAM.format(act="raise GraphError('bad node')"))
    assert result.code == 2 and "Traceback" not in result.err
    assert result.errors == ["hpcgnn: error on rank 1 of 3: bad node"]


def test_a_rank_killed_by_the_system_ends_the_job():
    """As the kernel does when memory runs out."""
    result = forked.start(2, "-c", PROGRAM.format(act="import os; os.kill(os.getpid(), 9)"))
    assert result.code != 0


def test_a_launcher_of_another_mpi_is_noticed():
    """Each rank then believes to be alone, and N copies of the same job would write the same files."""
    result = start(0, "-c", PROGRAM.format(act="pass"), OMPI_COMM_WORLD_SIZE="4")
    assert result.code != 0 and len(result.errors) == 1 and "do not match" in result.errors[0]
