"""The watchdog without MPI: processes share boards, and one stops, dies, works on or reads on, on one node or two."""

import mmap
import multiprocessing
import os
import signal
import sys
import time

import pytest

from hpcgnn.comm.heartbeat import Heartbeat, HeartbeatBoard, NodeReports, NodeSummary, RankState
from hpcgnn.comm.watchdog import EXIT_STALLED, Watchdog

LIMIT = 4.0
SIZE = 3


def board_at(path, place, places):
    """A board on a file."""
    if not path.exists():
        path.write_bytes(bytes(HeartbeatBoard.num_bytes(places)))
    with open(path, "r+b") as file:
        return HeartbeatBoard(mmap.mmap(file.fileno(), 0), place, places)


def meet(folder, rank, size):
    """Return when all ranks of a job have come here."""
    (folder / f"here-{rank}").touch()
    while len(list(folder.glob("here-*"))) < size:
        time.sleep(0.02)


def live(folder, nodes, rank, deed, log):
    """A rank that arrives and waits, unless it does something else. nodes: ranks of each."""
    sys.stderr = open(log, "a", buffering=1)
    node = next(each for each in nodes if rank in each)
    heartbeat = Heartbeat()
    board = board_at(folder / f"board-{node[0]}", node.index(rank), len(node))
    dog = Watchdog(rank, sum(map(len, nodes)), heartbeat, LIMIT, board)
    dog.share(folder / "heartbeats", lambda: meet(folder, rank, dog.size))
    dog.start()
    heartbeat.arrive("a message")
    time.sleep(1)
    if deed == "works":
        heartbeat.leave()
        heartbeat.at = "something long"
    if deed == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if deed == "reads":
        heartbeat.leave()
    for _ in range(int(10 * 3 * LIMIT)):
        time.sleep(0.1)
        if deed == "reads":
            heartbeat.beat()
    dog.finish()


def begin(folder, deeds, nodes):
    """The processes of a job, which has begun."""
    for node in nodes:
        board_at(folder / f"board-{node[0]}", 0, len(node))
    fork = multiprocessing.get_context("fork")
    ranks = [
        fork.Process(target=live, args=(folder, nodes, rank, deed, folder / "log")) for rank, deed in enumerate(deeds)
    ]
    for rank in ranks:
        rank.start()
    return ranks


ONE_NODE = ((0, 1, 2),)
# (who does something else than wait, what, what is said of it, the ranks of each node)
STANDSTILLS = (
    (0, "stops", "Did not arrive: rank 0 ({host}", ONE_NODE),
    (2, "works", "rank 2 ({host}, last at 'something long') works at something else", ONE_NODE),
    (0, "dies", "rank 0 ({host}", ONE_NODE),
    (0, "waits", "none: all wait, for different things", ONE_NODE),
    # Of two nodes, where another rank lives on, or of a node that is then lost altogether.
    (3, "stops", "Did not arrive: rank 3 (", ((0, 1), (2, 3))),
    (3, "stops", "Did not arrive: rank 3 (", ((1, 2), (0,), (3,))),
    (3, "works", "works at something else. Waiting: rank 0, 1, 2 for 'a message'", ((0, 1, 2), (3,))),
)
PROGRESS = (ONE_NODE, ((0,), (1, 2)))


def job(where, deed, nodes):
    """(the deed of each rank of a job, its nodes): one rank does something else, and all others wait."""
    return tuple(deed if rank == where else "waits" for rank in range(sum(map(len, nodes)))), nodes


JOBS = [job(where, deed, nodes) for where, deed, _, nodes in STANDSTILLS] + [job(2, "reads", each) for each in PROGRESS]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """{job: (exit codes of its ranks, its log, seconds until the last waiting rank ended)} of JOBS. The jobs run at the
    same time.
    """
    folders, seconds, start = {job: tmp_path_factory.mktemp("job") for job in JOBS}, {}, time.monotonic()
    begun = {job: begin(folders[job], *job) for job in JOBS}
    while len(seconds) < len(JOBS) and time.monotonic() < start + 60:
        time.sleep(0.05)
        for job, ranks in begun.items():
            if not any(rank.is_alive() for rank, deed in zip(ranks, job[0], strict=True) if deed != "stops"):
                seconds.setdefault(job, time.monotonic() - start)
    for rank in (rank for ranks in begun.values() for rank in ranks):
        rank.kill()  # one that stopped: by the watchdog already, unless its node has nobody else
        rank.join(60)
    codes = {job: [rank.exitcode for rank in ranks] for job, ranks in begun.items()}
    return {job: (codes[job], (folders[job] / "log").read_text(), seconds[job]) for job in JOBS}


@pytest.mark.parametrize("where, deed, words, nodes", STANDSTILLS, ids=str)
def test_a_job_that_stands_still_is_ended_by_all_ranks(ended, where, deed, words, nodes):
    """Also if the rank that looks after the node is the one that stops or dies.

    Only a death that is noticed before the limit is called one: after it, the job stands still. A rank that is not
    ended leaves with 0 after three limits by its own clock, so the exit codes hold the watchdog to them.
    """
    codes, said, seconds = ended[job(where, deed, nodes)]
    others = [*codes[:where], *codes[where + 1 :]]
    assert others == [EXIT_STALLED] * len(others), said
    assert words.format(host=os.uname().nodename) in said and "--resume" in said
    assert said.count("the job ends") == 1, "one rank says it"
    assert "in live" in said, "and where each stands is shown"
    assert ("has ended without finishing" in said) == (deed == "dies"), "a death is noticed before a standstill"
    assert seconds >= LIMIT or deed == "dies"


@pytest.mark.parametrize("nodes", PROGRESS, ids=str)
def test_a_rank_that_shows_progress_is_waited_for(ended, nodes):
    codes, said, _ = ended[job(2, "reads", nodes)]
    assert codes == [0] * SIZE, said


def work():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def test_what_is_progress_where_it_is_said_to_be():
    """Once the watchdog ended a job that was done. Rank 0 drew a picture on a machine with fifty other processes, or
    flushed files to a busy disk. The others waited for it.
    """
    heartbeat = Heartbeat()

    def progress_of(deed):
        before = heartbeat.progress()
        deed()
        return heartbeat.progress() - before

    def wait():
        time.sleep(0.3)

    assert progress_of(work) == 0, "an endless loop is none"
    with heartbeat.computing():
        assert progress_of(work) > 0
        assert progress_of(wait) == 0
    assert progress_of(work) == 0
    with heartbeat.storing():
        assert progress_of(wait) > 0
    assert progress_of(wait) == 0


def test_suspension_of_the_whole_job_does_not_count(monkeypatch):
    """`scontrol suspend` stops every process, this thread as well; time that it did not see is no standstill."""
    dog, ended = Watchdog(0, SIZE, Heartbeat(), LIMIT), []
    monkeypatch.setattr(dog, "_exit", lambda *code: ended.append(True))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    dog.heartbeat.arrive("a message")
    dog._look()
    dog._looked -= 3600
    dog._look()
    assert not ended
    for _ in range(50):
        if not ended:
            dog._looked -= dog._pause
            dog._look()
    assert ended


def test_reports_of_nodes_are_read_as_they_were_written(tmp_path):
    """Files that are damaged, or that somebody else put there, are left out; a folder that is gone is no error."""
    first, second, name = NodeReports(tmp_path, 0), NodeReports(tmp_path, 128), "from-rank-0000128"
    first.create(), second.create()
    assert first.summaries() == {} and first.ranks() == {name: []}
    for at in ("halo_forward", "the end"):
        summary, state = NodeSummary(3, 1.3, 0.5, 1, False), RankState(128, "a", at, True, False, "")
        second.write(summary, {0: state})
        assert first.summaries() == {name: summary} and second.summaries(first=True) == {}
        assert first.ranks() == {name: [state]}
    (tmp_path / "notes").write_text("what is this?")
    assert set(first.summaries()) == {name}
    (tmp_path / name).unlink()
    with pytest.raises(OSError):
        second.write(summary, {})
    assert NodeReports(tmp_path / "absent", 0).summaries() == {}
