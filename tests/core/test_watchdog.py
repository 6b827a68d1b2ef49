"""The watchdog without MPI: processes that share a board, one of which stops, dies, works on or reads on."""

import multiprocessing
import os
import signal
import sys
import time

import pytest

from hpcgnn.comm.pulse import Board, Line, Pulse, born, make_board, own_line
from hpcgnn.comm.watchdog import EXIT_STALLED, Watchdog

LIMIT = 4.0
SIZE = 3


def live(path, rank, deed, log):
    """A rank that arrives and waits, unless it does something else."""
    sys.stderr = open(log, "a", buffering=1)
    pulse = Pulse()
    dog = Watchdog(rank, SIZE, pulse, LIMIT, Board.open(path, SIZE))
    dog.start()
    pulse.arrive("a message")
    time.sleep(1)
    if deed == "works":
        pulse.leave()
        pulse.at = "something long"
    if deed == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if deed == "reads":
        pulse.leave()
    for _ in range(int(10 * 3 * LIMIT)):
        time.sleep(0.1)
        if deed == "reads":
            pulse.beat()
    dog.finish()


def job(tmp_path, deed):
    """Exit codes of three ranks, the last of which does `deed`, and what they said."""
    make_board(tmp_path / "board", SIZE)
    fork = multiprocessing.get_context("fork")
    deeds = ["waits"] * (SIZE - 1) + [deed]
    ranks = [
        fork.Process(target=live, args=(tmp_path / "board", rank, deeds[rank], tmp_path / "log"))
        for rank in range(SIZE)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks[:-1]:
        rank.join(60)
    ranks[-1].kill() if deed == "stops" else ranks[-1].join(60)
    return [rank.exitcode for rank in ranks], (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "deed, words",
    [
        ("stops", "Did not arrive: rank 2 (" + os.uname().nodename[:48]),
        ("works", "works at something else"),
        ("dies", "rank 2 (" + os.uname().nodename[:48]),
        ("waits", "none: all wait, for different things"),
    ],
)
def test_a_job_that_stands_still_is_ended_by_all_ranks(tmp_path, deed, words):
    codes, said = job(tmp_path, deed)
    assert codes[:-1] == [EXIT_STALLED] * (SIZE - 1), said
    assert words in said and "--resume" in said
    assert "in live" in said, "and where each stands is shown"


def test_a_rank_that_shows_progress_is_waited_for(tmp_path):
    codes, said = job(tmp_path, "reads")
    assert codes == [0] * SIZE, said


def test_the_use_of_the_processor_is_progress_where_it_is_said_to_be():
    """Rank 0 drew a picture on a machine with fifty other processes, the others waited for it, and the watchdog ended a
    job that was done.
    """

    def progress_of(deed):
        before = pulse.progress()
        deed()
        return pulse.progress() - before

    def work():
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass

    pulse = Pulse()
    assert progress_of(work) == 0, "an endless loop is none"
    with pulse.computing():
        assert progress_of(work) > 0
        assert progress_of(lambda: time.sleep(0.3)) == 0
    assert progress_of(work) == 0


def test_suspension_of_the_whole_job_does_not_count(tmp_path, monkeypatch):
    """`scontrol suspend` stops every process, this thread as well; time that it did not see is no standstill."""
    make_board(tmp_path / "board", SIZE)
    dog, ended = Watchdog(0, SIZE, Pulse(), LIMIT, Board.open(tmp_path / "board", SIZE)), []
    monkeypatch.setattr(dog, "_exit", lambda: ended.append(True))
    dog.pulse.arrive("a message")
    dog._look()
    dog._looked -= 3600
    dog._look()
    assert not ended
    for _ in range(50):
        if not ended:
            dog._looked -= dog._pause
            dog._look()
    assert ended


def test_lines_are_read_as_they_were_written_and_damaged_ones_are_left_out(tmp_path):
    make_board(tmp_path / "board", SIZE)
    board = Board.open(tmp_path / "board", SIZE)
    assert board.read() == {}
    pulse = Pulse()
    pulse.arrive('"quoted" \N{GREEK SMALL LETTER ALPHA}' * 30)
    lines = [own_line(rank, 7, pulse, False) for rank in (0, 2)]
    assert all(board.write(line) for line in lines)
    assert board.read() == {0: lines[0], 2: lines[1]} and not lines[0].is_dead()
    with open(tmp_path / "board", "r+b") as file:
        file.seek(10)
        file.write(b"\0\0\0\0")
    assert list(board.read()) == [2]
    assert Board.open(tmp_path / "absent" / "board", SIZE) is None
    mine = born(os.getpid())
    gone = Line(0, "h", os.getpid(), mine - 1, 1, 1, True, "a", False)
    assert gone.is_dead(), "the process id is used again by another process"
