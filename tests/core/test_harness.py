"""The runner of the parallel tests itself: a failure on one rank is seen, and nothing hangs."""

import shutil

import pytest

from .launching import ROOT, start

TESTS = """
import pytest
from mpi4py import MPI

def test_good(comm, shared_path):
    assert shared_path.is_dir()

def test_bad_on_one_rank(comm):
    assert comm.rank != 1

def test_skipped_on_one_rank(comm):
    if comm.rank == 0:
        pytest.skip("here only")

@pytest.fixture
def broken(comm):
    assert comm.rank != 1

def test_setup_bad_on_one_rank(broken):
    pass

def test_good_again(comm):
    assert comm.allgather_object(1) == [1] * comm.size
"""


def run(path, text, **environment):
    """pytest over two ranks in a folder with the conftest of tests/mpi."""
    tests = ROOT / "tests"
    for name in ("conftest.py", "cover.py", "promises.toml"):
        shutil.copy(tests / name, path)
    (path / "mpi").mkdir()
    for file in (tests / "mpi").glob("*.py"):
        shutil.copy(file, path / "mpi")
    (path / "mpi" / "test_them.py").write_text(text)
    # Of the lane that runs this test the inner run has no budget.
    environment["HPCGNN_TEST_BUDGET"] = ""
    return start(2, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", path, path, **environment)


@pytest.mark.slow
def test_failures_of_single_ranks(tmp_path):
    result = run(tmp_path, TESTS)
    assert result.code == 1, result.err
    assert result.out.count("2 failed, 2 passed, 1 error in") == 1, "one report for all ranks"
    assert "on rank 1 of 2" in result.out and "the ranks disagree: ['skipped', 'passed']" in result.out
