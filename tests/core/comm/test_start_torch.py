"""Ranks meet without MPI, by torch's store at the address of torchrun's variables; the kinds of their objects."""

import io
import multiprocessing
import os
import pickle
import re
import socket

import numpy as np
import pytest

from hpcgnn.comm.start_torch import StartedTorch
from hpcgnn.comm.torch_transport import PlainData
from hpcgnn.cores import Binding
from hpcgnn.errors import ConfigError


def attend(rank, variables, limit, results, leave):
    os.environ.update(variables, RANK=str(rank))
    try:
        started = StartedTorch(limit)
        results.put((rank, (started.ranks_on_node, started.node, started.address, started.board.places)))
    except ConfigError as error:
        results.put((rank, str(error)))
    leave.wait(20)  # rank 0 has the store


def meet(size, ranks, limit=20, host="127.0.0.1"):
    """{rank: result of StartedTorch, or its error}, with one process for each rank."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    variables = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    fork = multiprocessing.get_context("fork")
    results, leave = fork.Queue(), fork.Event()
    processes = [fork.Process(target=attend, args=(rank, variables, limit, results, leave)) for rank in ranks]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=60) for _ in ranks)
    leave.set()
    for process in processes:
        process.join(20)
    return found


def test_all_hear_of_all_whoever_comes_first():
    assert meet(4, [3, 2, 1, 0]) == dict.fromkeys(range(4), (4, 0, "127.0.0.1", 4))


@pytest.mark.parametrize(
    "size, ranks, host, words",
    [
        (4, (0, 2), "127.0.0.1", "rank 1, 3 of 4 has not come"),
        (2, (1,), "127.0.0.1", "rank 1 of 2 .* cannot meet the others at 127.0.0.1"),
        (2, (0,), "nowhere.invalid", "set MASTER_ADDR to an address of the node of rank 0"),
    ],
)
def test_those_who_come_are_told_who_is_missing(size, ranks, host, words):
    for text in meet(size, ranks, 2, host).values():
        assert re.search(words, text)


def test_objects_between_ranks_are_plain_data():
    def read(value):
        return PlainData(io.BytesIO(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))).load()

    value = {"a": (1, float("inf"), None), 3: [frozenset({1}), b"x", {}], "tuple": {"set": [True]}, "ä\ud800": -(2**70)}
    value |= {"binding": Binding(frozenset({1}), frozenset({1}))}
    assert read(value) == value and type(read(value)["binding"]) is Binding
    for array in (np.eye(2, dtype=np.float32), np.eye(3, dtype=np.int32)[:, 1], np.float64(0.5)):
        np.testing.assert_array_equal(read(array), array)
    # Code of a library, a class that is no tuple, and a function behind a name of the package.
    for module, name in (("os", "system"), ("hpcgnn.comm.ledger", "LedgerEntry"), ("hpcgnn.comm.run", "os.system")):
        data = (
            pickle.PROTO + b"\x04" + b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
        )
        with pytest.raises(pickle.UnpicklingError, match="plain data"):
            PlainData(io.BytesIO(data + pickle.STACK_GLOBAL + pickle.STOP)).load()
