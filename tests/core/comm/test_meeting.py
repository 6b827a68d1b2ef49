"""How ranks find each other without MPI: processes that meet, beside others that must not be taken for them."""

import multiprocessing
import os
import pickle
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from hpcgnn.comm.launch import rendezvous as meeting
from hpcgnn.comm.launch.launcher import Launch
from hpcgnn.comm.launch.secret import secret_of_user
from hpcgnn.comm.launch.start_torch import SealedStore
from hpcgnn.comm.plain_data import of_bytes, to_bytes
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
    monkeypatch.setattr(meeting, "_known_place", lambda launch: replace(place, ports=ports, word=launch.job))
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


def test_who_knows_the_job_but_not_the_secret_is_passed_by(ports_of, monkeypatch):
    """It listens as rank 0 of the job and answers as if it were; another one comes as rank 1."""
    monkeypatch.setattr(meeting, "_SECONDS_TO_BE_GREETED", 0.5)
    impostor = meeting._Listener(socket.create_server(("127.0.0.1", ports_of[0])), "mine", os.urandom(32))
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=_gather_all, args=(impostor,)), fork.Process(target=_come_without, args=(ports_of,))]
    for each in others:
        each.start()
    try:
        check(meet(*job("mine", 3)), "mine", 3)
    finally:
        impostor.socket.close()
        for each in others:
            each.kill()
            each.join()


def _gather_all(listener):
    meeting._gather(job("mine", 2)[0], listener, {}, lambda address: "theirs", 20)


def _come_without(ports):
    place = meeting.Place(("127.0.0.1",), ports[1:], "mine", os.urandom(32))
    meeting._find(job("mine", 3)[1], place, {"i am": "another"}, time.monotonic() + 20)


def test_a_secret_is_drawn_once_and_only_its_owner_reads_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path, first = tmp_path / "config" / "hpcgnn" / "secret", secret_of_user()
    assert len(first) == 32 and secret_of_user() == first and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="mode 600"):
        secret_of_user()


def test_a_value_in_the_store_that_no_rank_wrote():
    plain = dist.HashStore()
    store = SealedStore(plain, b"key")
    store.set("address", "mine")
    store.set("other", "of another key")
    assert store.get("address") == b"mine"
    plain.set("address", plain.get("other"))
    with pytest.raises(ConfigError, match="no rank of this job"):
        store.get("address")


def test_objects_between_ranks_are_plain_data():
    value = {"a": (1, float("inf"), None), 3: [frozenset({1}), b"x", {}], "tuple": {"set": [True]}, "ä\ud800": -(2**70)}
    assert of_bytes(to_bytes(value)) == value
    np.testing.assert_array_equal(of_bytes(to_bytes(np.eye(2, dtype=np.float32))), np.eye(2))
    with pytest.raises(TypeError, match="Path"):
        to_bytes([Path("x")])
    for strange in (pickle.dumps(value), b'{"class": []}', b'{"array": ["O", [1], ""]}', b'{"dict": 1, "set": 2}'):
        with pytest.raises(ValueError):
            of_bytes(strange)


AWAY = {"one_node": False}


@pytest.mark.parametrize(
    "size, ranks, more, words",
    [
        (4, (0, 2), {}, "rank 1, 3 of 4 has not come"),
        (2, (1,), {}, "cannot reach rank 0 at 127.0.0.1"),
        # An address of documentation, which no machine has.
        (2, (0,), {**AWAY, "host": "192.0.2.77"}, "set MASTER_ADDR to an address of the node of rank 0"),
        (2, (1,), {**AWAY, "host": "nowhere-07"}, "'nowhere-07', has no address"),
        (2, (1,), {**AWAY, "host": None}, "srun does not say on which node rank 0 runs; set MASTER_ADDR"),
    ],
    ids=str,
)
def test_those_who_come_are_told_who_is_missing(size, ranks, more, words):
    launches = [replace(launch, **more) for launch in job("lonely", size, ranks=ranks)]
    found = meet(*launches, limit=0.5)
    assert set(found) == {("lonely", rank) for rank in ranks}
    assert all(words in text for text in found.values()), found


def test_a_port_that_was_given_is_the_only_one():
    place = meeting._known_place(job("given", 2, one_node=False, host="127.0.0.1", port=29500)[0])
    assert place.addresses == ("127.0.0.1",) and place.ports == (29500,)
