"""How ranks find each other without MPI: processes that meet, beside others that must not be taken for them."""

import multiprocessing
import socket

import pytest

from hpcgnn.comm.launch import rendezvous as meeting
from hpcgnn.comm.launch.launcher import Launch
from hpcgnn.errors import ConfigError


def attend(launch, limit, results, offer="a store"):
    try:
        found = meeting.meet(launch, None, {"i am": f"{launch.job} {launch.rank}"}, lambda address: offer, limit)
        results.put((launch.job, launch.rank, found))
    except ConfigError as error:
        results.put((launch.job, launch.rank, str(error)))


def meet(*launches, limit=20):
    """{(job, rank): Meeting or what went wrong} of a process for each."""
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    processes = [fork.Process(target=attend, args=(launch, limit, results)) for launch in launches]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in launches]
    for process in processes:
        process.join(20)
    return {(job, rank): what for job, rank, what in found}


def job(name, size, ranks=None, **more):
    ranks = range(size) if ranks is None else ranks
    return [Launch("srun", rank, size, f"node{rank}", name, **{"one_node": True, **more}) for rank in ranks]


def check(found, name, size):
    for rank in range(size):
        met = found[name, rank]
        assert met.said == [{"i am": f"{name} {other}"} for other in range(size)] and met.offer == "a store"
        assert met.address == met.first == "127.0.0.1"


def test_all_hear_of_all_whoever_comes_first():
    check(meet(*reversed(job("mine", 5))), "mine", 5)


@pytest.fixture
def ports_of(monkeypatch):
    """All jobs have the same few ports."""
    monkeypatch.setattr(meeting, "_NUMBER_OF_PORTS", 1)
    monkeypatch.setattr(meeting, "_FIRST_PORT", 21000)
    place = meeting._known_place(job("any", 1)[0])
    assert len(set(place.ports)) == 1
    ports = tuple(range(21000, 21004))
    monkeypatch.setattr(meeting, "_known_place", lambda launch: meeting.Place(place.addresses, ports, launch.job))
    return ports


def test_two_jobs_on_the_same_ports_do_not_mix(ports_of):
    found = meet(*job("one", 3), *job("other", 3))
    check(found, "one", 3)
    check(found, "other", 3)


def test_something_else_that_listens_there_is_passed_by(ports_of, monkeypatch):
    """It says nothing, or something else."""
    monkeypatch.setattr(meeting, "_SECONDS_TO_BE_GREETED", 0.3)
    with socket.create_server(("127.0.0.1", ports_of[0])), socket.create_server(("127.0.0.1", ports_of[1])) as rude:
        talks = multiprocessing.get_context("fork").Process(target=_say_hello, args=(rude,))
        talks.start()
        check(meet(*job("mine", 3)), "mine", 3)
        talks.kill()
        talks.join()


def _say_hello(listener):
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"SSH-2.0-something\r\n")


def test_those_who_come_are_told_who_is_missing():
    found = meet(*job("lonely", 4, ranks=(0, 2)), limit=1)
    assert set(found) == {("lonely", 0), ("lonely", 2)}
    assert all("rank 1, 3 of 4 has not come" in text for text in found.values())


def test_no_rank_0():
    found = meet(*job("headless", 2, ranks=(1,)), limit=0.5)
    assert "cannot reach rank 0 at 127.0.0.1" in found["headless", 1]


def test_rank_0_elsewhere_than_the_launcher_says():
    """An address of documentation, which no machine has."""
    found = meet(*job("astray", 2, ranks=(0,), one_node=False, host="192.0.2.77"), limit=1)
    assert "set MASTER_ADDR to an address of the node of rank 0" in found["astray", 0]


def test_without_a_word_of_the_launcher_it_asks_for_one():
    found = meet(*job("unknown", 2, ranks=(1,), one_node=False), limit=1)
    assert "srun does not say on which node rank 0 runs; set MASTER_ADDR" in found["unknown", 1]


def test_a_port_that_was_given_is_the_only_one():
    place = meeting._known_place(job("given", 2, one_node=False, host="127.0.0.1", port=29500)[0])
    assert place.addresses == ("127.0.0.1",) and place.ports == (29500,)
