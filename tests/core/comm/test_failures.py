"""Jobs that fail, as a user meets them: the exit code, one line with the remedy, no traceback, no rank left waiting.

Here through the real launcher; tests/mpi/app/test_bad_input.py has the whole list of mistakes, on all ranks of one job.
"""

from .. import forked

SLOW_RANK_0 = """
import os, sys, time
from hpcgnn.__main__ import main
time.sleep(2 * (os.environ["PMI_RANK"] == "0"))
sys.exit(main(["train", "--graph", "g.h5", "--epochs", "0"]))
"""


def test_a_mistake_in_the_options_is_said_however_slow_rank_0_is():
    """Every rank finds it before MPI starts. Ranks that leave first must not end the only rank that prints."""
    result = forked.start(2, "-c", SLOW_RANK_0)
    assert result.code not in (0, None) and "Traceback" not in result.err + result.out
    assert len(result.errors) == 1 and "expected at least 1" in result.errors[0], result.err


PROGRAM = """
import sys
from hpcgnn.comm.run import run
from hpcgnn.errors import GraphError
def work(session):
    if session.comm.rank == 1:
        raise GraphError("bad node")
    session.comm.allgather_object(None)
sys.exit(run(work))
"""


ALL_BUT_ONE = """
import sys
from hpcgnn.comm.run import run
def work(session):
    if session.comm.rank != 2:
        raise ValueError("odd" if session.comm.rank == 3 else "even")
    session.comm.allgather_object(None)
sys.exit(run(work))
"""


def test_ranks_that_fail_together_print_one_traceback():
    """The lowest rank prints, and names the ranks that failed alike and otherwise."""
    result = forked.start(4, "-c", ALL_BUT_ONE)
    assert result.code == 1, result.err
    assert result.err.count("Traceback (most recent call last)") == 1
    assert "rank 0 of 4 failed and ends the job (rank 1 alike; rank 3: ValueError: odd):" in result.err


def test_a_mistake_that_only_one_rank_knows_of_ends_the_job():
    result = forked.start(3, "-c", PROGRAM)
    assert result.code == 2 and "Traceback" not in result.err
    assert result.errors == ["hpcgnn: error on rank 1 of 3: bad node"]


def test_a_launcher_of_another_mpi_is_noticed():
    """Each rank then believes to be alone, and N copies of the same job would write the same files."""
    result = forked.start(0, "-c", PROGRAM, OMPI_COMM_WORLD_SIZE="4")
    assert result.code != 0 and len(result.errors) == 1 and "do not match" in result.errors[0]
